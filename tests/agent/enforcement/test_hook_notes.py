"""The OCI hook was there before the agent looked at a pod's cgroup: kubelet's value is not lost."""

from __future__ import annotations

import pytest

from agent.enforcement.found import Found
from agent.enforcement.places import Place
from qos.plan.settings import Plan
from tests.agent.enforcement.conftest import UID, Rig, above, another_writes, plan

SHARES = "cpu.shares"


def note(rig: Rig, text: str) -> None:
    folder = rig.run / "found"
    folder.mkdir(exist_ok=True)
    (folder / UID).write_text(text)
    (folder / UID).chmod(0o600)


def test_what_the_hook_overwrote_comes_back(rig: Rig) -> None:
    one = rig.container()
    pod = above(one.cgroup, 1)
    note(rig, f"{pod}\t{SHARES}\t102\n")
    another_writes(rig.file(pod, SHARES), "700")
    assert rig.enforcer.apply(one, plan((1, SHARES, 700))).applied
    assert rig.enforcer.originals[pod, SHARES] == "102"
    rig.enforcer.apply(one, Plan(()))
    assert rig.read(pod, SHARES) == "102"


def test_what_is_not_ours_at_the_first_look_is_newer_than_the_note(rig: Rig) -> None:
    one = rig.container()
    pod = above(one.cgroup, 1)
    note(rig, f"{pod}\t{SHARES}\t102\n")
    rig.write(pod, SHARES, 204)
    rig.enforcer.apply(one, plan((1, SHARES, 700)))
    assert rig.enforcer.originals[pod, SHARES] == "204"


@pytest.mark.parametrize("text", ["", "no note\n", f"/elsewhere\t{SHARES}\t102\n", "\udcff", "x" * 20_000])
def test_what_is_no_note_of_it_counts_for_nothing(rig: Rig, text: str) -> None:
    pod = above(rig.container().cgroup, 1)
    note(rig, "")
    (rig.run / "found" / UID).write_bytes(text.encode(errors="surrogateescape"))
    assert Found(rig.run).value(Place(pod, SHARES)) is None
    assert Found(rig.run).value(Place("/no/pod", SHARES)) is None


def test_notes_of_pods_that_are_gone_are_removed(rig: Rig) -> None:
    found = Found(rig.run)
    found.keep([])
    note(rig, "")
    found.keep([UID])
    assert (rig.run / "found" / UID).exists()
    found.keep([])
    assert not (rig.run / "found" / UID).exists()
