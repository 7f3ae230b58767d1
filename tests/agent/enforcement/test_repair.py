"""What others change is put right, in cgroup v1 files, real and plain; what they want is remembered."""

from __future__ import annotations

import pytest

from agent.enforcement.fights import FIRST_PAUSE, MOST_REPAIRS, WINDOW
from agent.enforcement.places import Place
from agent.enforcement.repair import Drift, Repairer
from agent.enforcement.writers import ENDED, UNSEEN
from agent.state import Running
from qos.plan.settings import Plan
from tests.agent.enforcement.conftest import Rig, above, plan

SHARES, IDLE, MEMORY, SWAP = "cpu.shares", "cpu.idle", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"
MIB = 1 << 20


class Kept:
    """A container whose plan is in effect, and what its repairer told."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.drifts: list[Drift] = []
        self.escalated: list[Place] = []
        self.repairer = Repairer(rig.enforcer, self.drifts.append, self.escalated.append)
        self.one: Running = rig.container()
        self.tier = above(self.one.cgroup, 2)
        rig.write(self.tier, SHARES, 2000)
        self.plan = plan((2, SHARES, 5000), (1, SHARES, 700), (0, SHARES, 600), (0, "pids.max", 99))
        assert rig.enforcer.apply(self.one, self.plan).applied

    def told(self) -> list[tuple[str, str, str, str]]:
        """(file, what it said, what is planned, writer) of each drift since the last time."""
        found = [(one.place.file, one.have, one.want, one.writer) for one in self.drifts]
        self.drifts.clear()
        return found

    def checked(self) -> None:
        for path in self.repairer.check():
            if path:
                self.repairer.mend(path)


@pytest.fixture
def kept(rig: Rig) -> Kept:
    return Kept(rig)


@pytest.mark.parametrize("level", [0, 1])
def test_a_file_of_its_own(kept: Kept, rig: Rig, level: int) -> None:
    path = above(kept.one.cgroup, level)
    ours = rig.read(path, SHARES)
    rig.write(path, SHARES, 300)
    kept.repairer.mend(path, {(path, SHARES): "kubelet"})
    assert rig.read(path, SHARES) == ours
    assert kept.told() == [(SHARES, "300", ours, "kubelet")]
    rig.enforcer.apply(kept.one, Plan(()))
    assert rig.read(path, SHARES) == "300"  # that is what kubelet wants by now


def test_what_a_person_writes_is_put_right_and_nothing_more(kept: Kept, rig: Rig) -> None:
    """Else the next plan would be made from it."""
    pod = above(kept.one.cgroup, 1)
    before = dict(rig.enforcer.originals)
    for path in (kept.one.cgroup, pod, kept.tier):
        ours = rig.read(path, SHARES)
        rig.write(path, SHARES, 77)
        kept.repairer.mend(path, {(path, SHARES): "other"})
        assert rig.read(path, SHARES) == ours
    assert dict(rig.enforcer.originals) == before


def test_several_files_of_a_container_in_their_order(kernel_rig: Rig) -> None:
    """An update of resources: the runtime writes limits of which one must not exceed the other."""
    kept = Kept(kernel_rig)
    path = kept.one.cgroup
    wanted = plan((0, MEMORY, 64 * MIB), (0, SWAP, 64 * MIB), (0, SHARES, 600))
    assert kernel_rig.enforcer.apply(kept.one, wanted).applied
    kernel_rig.write(path, SWAP, 512 * MIB)
    kernel_rig.write(path, MEMORY, 256 * MIB)
    kernel_rig.write(path, IDLE, 0)
    kernel_rig.write(path, SHARES, 204)
    kept.repairer.mend(path, {(path, SHARES): "runtime"})
    assert [kernel_rig.read(path, file) for file in (MEMORY, SWAP, SHARES)] == [
        str(64 * MIB),
        str(64 * MIB),
        "600",
    ]
    assert {file for file, *_ in kept.told()} == {MEMORY, SWAP, SHARES}


def test_the_full_check_finds_everything(kept: Kept, rig: Rig) -> None:
    report = rig.enforcer.reports[kept.one.key]
    before = report.verified_at
    rig.clock.now += 60
    kept.checked()
    assert kept.told() == []
    assert report.verified_at == before + 60
    rig.write(kept.one.cgroup, "pids.max", 7)
    rig.write(kept.tier, SHARES, 1000)
    kept.checked()
    assert (rig.read(kept.one.cgroup, "pids.max"), rig.read(kept.tier, SHARES)) == ("99", "5000")
    assert {(file, writer) for file, _, _, writer in kept.told()} == {
        ("pids.max", "other"),
        (SHARES, "other"),
    }
    assert report.applied


def test_a_shared_file_is_raised_again_and_what_kubelet_wants_there_is_known(kept: Kept, rig: Rig) -> None:
    rig.write(kept.tier, SHARES, 3000)
    kept.repairer.mend(kept.tier, {(kept.tier, SHARES): "kubelet"})
    assert rig.read(kept.tier, SHARES) == "5000"
    assert kept.told() == [(SHARES, "3000", "5000", "kubelet")]
    rig.enforcer.apply(kept.one, Plan(()))
    list(rig.enforcer.sweep())
    assert rig.read(kept.tier, SHARES) == "3000"


def test_kubelet_may_raise_a_shared_file_above_ours(kept: Kept, rig: Rig) -> None:
    rig.write(kept.tier, SHARES, 8000)
    kept.repairer.mend(kept.tier, {(kept.tier, SHARES): "kubelet"})
    assert kept.told() == []  # that is no drift: our floor is kept
    rig.enforcer.shared()
    assert rig.read(kept.tier, SHARES) == "8000"
    rig.write(kept.tier, SHARES, 2500)  # and lower it again: what it wanted before is no reason to raise it
    kept.repairer.mend(kept.tier, {(kept.tier, SHARES): "kubelet"})
    assert rig.read(kept.tier, SHARES) == "5000"


def test_what_the_hook_raises_is_left_until_all_plans_are_known(kept: Kept, rig: Rig) -> None:
    rig.write(kept.tier, SHARES, 9000)
    kept.repairer.mend(kept.tier, {(kept.tier, SHARES): ENDED})
    assert (rig.read(kept.tier, SHARES), kept.told()) == ("9000", [])
    kept.checked()
    assert rig.read(kept.tier, SHARES) == "9000"
    rig.enforcer.shared()
    assert rig.read(kept.tier, SHARES) == "5000"


def test_where_nobody_is_seen_to_write_a_raise_is_kubelets(kept: Kept, rig: Rig) -> None:
    rig.enforcer.writing.notes.untold = UNSEEN  # as with inotify
    rig.write(kept.tier, SHARES, 9000)
    kept.repairer.mend(kept.tier, {})
    rig.enforcer.shared()
    assert rig.read(kept.tier, SHARES) == "9000"


def test_a_fight_is_given_up_for_a_while_and_said(kept: Kept, rig: Rig) -> None:
    path, spot = kept.one.cgroup, {(kept.one.cgroup, SHARES): "systemd"}

    def undo() -> str:
        rig.write(path, SHARES, 300)
        kept.repairer.mend(path, spot)
        return rig.read(path, SHARES)

    assert [undo() for _ in range(MOST_REPAIRS + 3)] == ["600"] * MOST_REPAIRS + ["300"] * 3
    assert kept.escalated == [Place(path, SHARES)]
    (fight,) = rig.enforcer.fights.going_on()
    assert (fight.place, fight.writer) == (Place(path, SHARES), "systemd")
    report = rig.enforcer.reports[kept.one.key]
    assert (report.applied, report.verified_at) == (True, float("-inf"))  # written, and it reads otherwise
    assert "systemd keeps changing it back to 300" in str(report.refusals[0])
    rig.write(path, "pids.max", 7)
    kept.repairer.mend(path, spot)
    assert (rig.read(path, SHARES), rig.read(path, "pids.max")) == ("300", "99")  # all else is kept
    assert rig.enforcer.apply(kept.one, kept.plan) is report  # nor does the same plan take it up
    assert rig.read(path, SHARES) == "300"
    assert rig.enforcer.originals[path, SHARES] == "300"  # systemd is one of those who decide
    rig.clock.now += FIRST_PAUSE
    kept.checked()
    assert rig.read(path, SHARES) == "600"  # one more try
    assert report.applied
    assert report.refusals == ()
    rig.clock.now += WINDOW
    kept.checked()
    assert rig.enforcer.fights.going_on() == ()


def test_what_the_kernel_refuses_is_said_and_tried_again(kernel_rig: Rig) -> None:
    kept = Kept(kernel_rig)
    path = kept.one.cgroup
    kernel_rig.write(above(path, 1), "cpu.cfs_quota_us", 60_000)
    assert kernel_rig.enforcer.apply(kept.one, plan((0, "cpu.cfs_quota_us", 50_000))).applied
    kernel_rig.write(path, "cpu.cfs_quota_us", 20_000)
    kernel_rig.write(above(path, 1), "cpu.cfs_quota_us", 30_000)
    kept.repairer.mend(path, {})
    report = kernel_rig.enforcer.reports[kept.one.key]
    assert not report.applied
    assert [(refusal.file, refusal.errno) for refusal in report.refusals] == [("cpu.cfs_quota_us", 22)]
    assert [drift.repaired for drift in kept.drifts] == [False]
    kernel_rig.write(above(path, 1), "cpu.cfs_quota_us", 60_000)
    assert kernel_rig.enforcer.apply(kept.one, plan((0, "cpu.cfs_quota_us", 50_000))).applied
    assert kernel_rig.read(path, "cpu.cfs_quota_us") == "50000"


def test_a_cgroup_that_is_gone_is_no_drift(kept: Kept, rig: Rig) -> None:
    rig.remove(kept.one.cgroup)
    kept.checked()
    assert kept.told() == []
    assert len(rig.enforcer) == 0


def test_containers_with_plans_of_different_age_do_not_fight_over_their_pod(rig: Rig) -> None:
    one, two = rig.container(), rig.container("two", "d" * 64)
    for each in (one, two):
        rig.enforcer.apply(each, plan((1, SHARES, 700), (0, SHARES, 600)))
    assert rig.enforcer.apply(one, plan((1, SHARES, 900), (0, SHARES, 600))).applied
    assert not rig.enforcer.apply(two, plan((1, SHARES, 900), (0, "cpuset.cpus", "4000"))).applied
    drifts: list[Drift] = []
    repairer = Repairer(rig.enforcer, drifts.append, lambda _: None)
    assert set(repairer.check()) == {""}
    pod = above(one.cgroup, 1)
    rig.write(pod, SHARES, 300)
    repairer.mend(pod)
    assert rig.read(pod, SHARES) == "900"
    assert [(drift.have, drift.want) for drift in drifts] == [("300", "900")]
