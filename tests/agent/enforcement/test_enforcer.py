"""Plans into cgroup v1 files, real and plain: all or none, what others wanted comes back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.state import ContainerKey, Running
from qos.plan.settings import Plan
from tests.agent.enforcement.conftest import ID, UID, Rig, above, of_process, plan

OTHER_ID = "d" * 64
NEXT_UID = "0a1b2c3d-0000-4000-8000-000000000002"
SHARES, SOFT = "cpu.shares", "memory.soft_limit_in_bytes"
UNLIMITED = "9223372036854771712"


def test_all_of_a_plan_is_in_effect(rig: Rig) -> None:
    one = rig.container()
    report = rig.enforcer.apply(
        one, plan((2, SHARES, 5000), (1, SHARES, 700), (0, SHARES, 600), (0, "pids.max", 99))
    )
    assert (report.applied, report.written, report.refusals, report.gone) == (True, 4, (), False)
    assert [rig.read(above(one.cgroup, up), SHARES) for up in range(4)] == ["600", "700", "5000", "1024"]
    assert rig.read(one.cgroup, "pids.max") == "99"
    assert rig.enforcer.reports == {one.key: report}


def test_the_same_plan_again_touches_nothing(rig: Rig) -> None:
    one = rig.container()
    rig.enforcer.apply(one, plan((0, SHARES, 600)))
    rig.write(one.cgroup, SHARES, 300)
    assert rig.enforcer.apply(one, plan((0, SHARES, 600))).applied
    assert rig.read(one.cgroup, SHARES) == "300"  # drift's to repair
    rig.enforcer.apply(one, plan((0, SHARES, 601)))
    assert rig.read(one.cgroup, SHARES) == "601"


def test_none_is_in_effect_when_one_is_refused(rig: Rig) -> None:
    one = rig.container()
    refused = plan((0, SHARES, 600), (0, "cpuset.cpus", "4000"))
    report = rig.enforcer.apply(one, refused)
    assert not report.applied
    assert [refusal.file for refusal in report.refusals] == ["cpuset.cpus"]
    assert rig.read(one.cgroup, SHARES) == "1024"
    assert len(rig.enforcer.wants) == 0
    assert rig.enforcer.apply(one, plan((0, SHARES, 600))).applied
    report = rig.enforcer.apply(one, refused)
    assert rig.read(one.cgroup, SHARES) == "600"
    assert rig.enforcer.apply(one, Plan(())).applied
    assert rig.read(one.cgroup, SHARES) == "1024"


def test_what_is_no_longer_planned_is_as_others_want_it(kernel_rig: Rig) -> None:
    one = kernel_rig.container()
    kernel_rig.write(one.cgroup, SHARES, 204)
    kernel_rig.enforcer.apply(one, plan((1, SHARES, 700), (0, SHARES, 600), (0, SOFT, 1 << 20)))
    kernel_rig.enforcer.apply(one, plan((0, SHARES, 600)))
    assert kernel_rig.read(one.cgroup, SHARES) == "600"
    assert kernel_rig.read(above(one.cgroup, 1), SHARES) == "1024"
    assert kernel_rig.read(one.cgroup, SOFT) == UNLIMITED
    kernel_rig.enforcer.apply(one, Plan(()))
    assert kernel_rig.read(one.cgroup, SHARES) == "204"
    assert dict(kernel_rig.enforcer.originals) == {}


def test_an_idle_cgroup_gets_its_weight_back(kernel_rig: Rig) -> None:
    one = kernel_rig.container()
    kernel_rig.write(one.cgroup, SHARES, 204)
    assert kernel_rig.enforcer.apply(one, plan((0, SHARES, 600))).applied
    assert kernel_rig.enforcer.apply(one, plan((0, "cpu.idle", 1))).applied
    assert kernel_rig.read(one.cgroup, SHARES) == "3"
    list(kernel_rig.enforcer.sweep())
    assert kernel_rig.read(one.cgroup, "cpu.idle") == "1"
    assert kernel_rig.enforcer.apply(one, Plan(())).applied
    assert (kernel_rig.read(one.cgroup, "cpu.idle"), kernel_rig.read(one.cgroup, SHARES)) == ("0", "204")


def test_a_cgroup_made_idle_at_first_gets_its_weight_back(rig: Rig) -> None:
    one = rig.container()
    rig.write(one.cgroup, SHARES, 204)
    assert rig.enforcer.apply(one, plan((0, "cpu.idle", 1))).applied
    assert rig.agent().apply(one, Plan(())).applied
    assert (rig.read(one.cgroup, "cpu.idle"), rig.read(one.cgroup, SHARES)) == ("0", "204")


def test_a_pods_file_stays_while_another_of_its_containers_wants_it(rig: Rig) -> None:
    one, two = rig.container(), rig.container("two", OTHER_ID)
    both = plan((1, SHARES, 700))
    for each in (one, two):
        rig.enforcer.apply(each, both)
    rig.enforcer.apply(one, Plan(()))
    assert rig.read(above(one.cgroup, 1), SHARES) == "700"
    rig.enforcer.apply(two, Plan(()))
    assert rig.read(above(one.cgroup, 1), SHARES) == "1024"


def test_a_shared_cgroup_has_what_suffices_for_all_and_not_more(rig: Rig) -> None:
    one, two = rig.container(), rig.container("app", OTHER_ID, NEXT_UID)
    tier = above(one.cgroup, 2)
    rig.write(tier, SHARES, 2000)
    rig.enforcer.apply(one, plan((2, SHARES, 5000)))
    rig.enforcer.apply(two, plan((2, SHARES, 7000)))
    assert rig.enforcer.shared() == []
    assert rig.read(tier, SHARES) == "7000"
    rig.enforcer.apply(two, plan((2, SHARES, 3000)))
    assert rig.read(tier, SHARES) == "7000"
    assert [(report.key.name, report.written) for report in rig.enforcer.shared()] == [(tier, 1)]
    assert rig.read(tier, SHARES) == "5000"
    rig.enforcer.apply(one, plan((2, SHARES, 100)))
    rig.enforcer.forget(OTHER_ID)
    rig.enforcer.shared()
    assert rig.read(tier, SHARES) == "2000"  # never below what others want
    rig.enforcer.apply(one, Plan(()))
    assert list(rig.enforcer.sweep()) == [tier]
    assert rig.read(tier, SHARES) == "2000"
    assert dict(rig.enforcer.originals) == {}


@pytest.mark.parametrize(
    ("awaited", "lowered"),
    [((), True), (("/kubepods/elsewhere/podX",), True), (("TIER/podX",), False), (("",), False)],
)
def test_a_shared_cgroup_waits_for_pods_in_it_alone(
    rig: Rig, awaited: tuple[str, ...], lowered: bool
) -> None:
    one = rig.container()
    tier = above(one.cgroup, 2)
    waits = [where.replace("TIER", tier) for where in awaited]
    rig.enforcer.apply(one, plan((2, SHARES, 5000)))
    rig.enforcer.apply(one, plan((2, SHARES, 3000)))
    rig.enforcer.shared(awaited=waits)
    assert rig.read(tier, SHARES) == ("3000" if lowered else "5000")
    rig.enforcer.apply(one, Plan(()))
    assert list(rig.enforcer.sweep(awaited=waits)) == ([tier] if lowered else [])
    assert rig.read(tier, SHARES) == ("1024" if lowered else "5000")


@pytest.mark.parametrize(("where", "lowered"), [("TIER/podX/c", False), ("/kubepods/elsewhere/podX/c", True)])
def test_a_refused_plan_keeps_what_is_shared_above_it_alone(rig: Rig, where: str, lowered: bool) -> None:
    one = rig.container()
    tier = above(one.cgroup, 2)
    other = Running(ContainerKey("X", "c"), "d" * 64, where.replace("TIER", tier))
    assert not rig.enforcer.apply(other, plan((50, SHARES, 2))).applied, "there is no such level"
    rig.enforcer.apply(one, plan((2, SHARES, 5000)))
    rig.enforcer.apply(one, plan((2, SHARES, 3000)))
    rig.enforcer.shared()
    assert rig.read(tier, SHARES) == ("3000" if lowered else "5000")
    rig.enforcer.apply(one, Plan(()))
    assert list(rig.enforcer.sweep()) == ([tier] if lowered else [])


def test_ending_undoes_nothing_and_the_next_agent_knows(rig: Rig) -> None:
    one = rig.container()
    tier = above(one.cgroup, 2)
    rig.write(one.cgroup, SHARES, 204)
    wanted = plan((2, SHARES, 5000), (1, SHARES, 700), (0, SHARES, 600))
    rig.enforcer.apply(one, wanted)
    next_one = rig.agent()
    assert rig.read(one.cgroup, SHARES) == "600"
    assert next_one.apply(one, wanted).written == 0
    next_one.apply(one, Plan(()))
    assert list(next_one.sweep()) == [tier]
    assert [rig.read(above(one.cgroup, up), SHARES) for up in range(3)] == ["204", "1024", "1024"]


def test_what_others_wrote_while_no_agent_was_there(rig: Rig) -> None:
    one = rig.container()
    rig.enforcer.apply(one, plan((0, SHARES, 600)))
    rig.write(one.cgroup, SHARES, 300)
    next_one = rig.agent()
    assert next_one.apply(one, plan((0, SHARES, 600))).written == 1
    next_one.apply(one, Plan(()))
    assert rig.read(one.cgroup, SHARES) == "300"


def test_what_the_hook_raised_while_no_agent_was_there_is_not_kept_for_ever(rig: Rig) -> None:
    one = rig.container()
    tier = above(one.cgroup, 2)
    rig.enforcer.apply(one, plan((2, SHARES, 5000)))
    rig.write(tier, SHARES, 9000)  # for a container that has ended since
    next_one = rig.agent()
    next_one.apply(one, plan((2, SHARES, 5000)))
    next_one.shared()
    assert rig.read(tier, SHARES) == "5000"


def test_a_container_that_nri_gave_our_value_at_birth(kernel_rig: Rig) -> None:
    one = kernel_rig.container()
    kernel_rig.write(one.cgroup, SHARES, 600)
    kernel_rig.write(one.cgroup, SOFT, 1 << 20)
    kernel_rig.enforcer.originals.seed(one.cgroup, {SHARES: "204"})
    assert kernel_rig.enforcer.apply(one, plan((0, SHARES, 600), (0, SOFT, 1 << 20))).written == 0
    kernel_rig.enforcer.apply(one, Plan(()))
    assert (kernel_rig.read(one.cgroup, SHARES), kernel_rig.read(one.cgroup, SOFT)) == ("204", UNLIMITED)


def test_a_cgroup_removed_in_the_middle(rig: Rig) -> None:
    one = rig.container()
    rig.enforcer.apply(one, plan((1, SHARES, 700), (0, SHARES, 600)))
    rig.remove(one.cgroup)
    report = rig.enforcer.apply(one, plan((0, SHARES, 601)))
    assert report.gone
    assert len(rig.enforcer) == 0
    assert rig.enforcer.reports == {}
    rig.remove(above(one.cgroup, 1))
    list(rig.enforcer.sweep())
    assert dict(rig.agent().originals) == {}
    assert len(rig.enforcer.writing.notes.index) == 0


def test_one_hierarchy_without_the_cgroup_is_a_refusal(rig: Rig) -> None:
    one = rig.container()
    rig.remove(one.cgroup, "pids")
    report = rig.enforcer.apply(one, plan((0, SHARES, 600), (0, "pids.max", 99)))
    assert (report.applied, report.gone) == (False, False)
    assert rig.read(one.cgroup, SHARES) == "1024"


def test_a_container_started_anew_under_its_name(rig: Rig) -> None:
    one = rig.container()
    rig.enforcer.apply(one, plan((1, SHARES, 700), (0, SHARES, 600)))
    new = rig.container("app", OTHER_ID)
    report = rig.enforcer.apply(new, plan((1, SHARES, 700), (0, SHARES, 600)))
    rig.enforcer.forget(ID)  # the runtime tells late
    assert rig.enforcer.reports == {new.key: report}
    list(rig.enforcer.sweep())
    assert rig.read(above(new.cgroup, 1), SHARES) == "700"
    assert rig.read(new.cgroup, SHARES) == "600"


@pytest.fixture
def child(rig: Rig) -> Iterator[subprocess.Popen[bytes]]:
    argv = [sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as process:
        yield process


@pytest.mark.parametrize("told", [True, False])
def test_a_setting_of_the_process(kernel_rig: Rig, child: subprocess.Popen[bytes], told: bool) -> None:
    one = kernel_rig.container()
    if told:
        one = Running(one.key, one.container_id, one.cgroup, child.pid)
    else:  # its process is not there yet: that is no failure
        report = kernel_rig.enforcer.apply(one, of_process(800))
        assert (report.applied, report.written) == (True, 0)
    for controller in kernel_rig.mounts:
        (kernel_rig.scratch.folder(controller, *one.cgroup.split("/")[2:]) / "cgroup.procs").write_text(
            str(child.pid)
        )
    assert kernel_rig.enforcer.apply(one, of_process(800)).written == 1
    score = Path(f"/proc/{child.pid}/oom_score_adj")
    assert score.read_text() == "800\n"
    kernel_rig.enforcer.apply(one, Plan(()))
    assert score.read_text() == Path("/proc/self/oom_score_adj").read_text()


def test_the_lock_is_taken_for_what_is_shared_and_let_go(rig: Rig) -> None:
    one = rig.container()
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(rig.run / "hook.lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        holder.stdout.readline()
        report = rig.enforcer.apply(one, plan((2, SHARES, 5000)))
        assert not report.applied
        assert "held by another" in str(report.refusals[0])
        assert rig.enforcer.apply(one, plan((0, SHARES, 600))).applied
        holder.stdin.close()
    assert rig.enforcer.apply(one, plan((2, SHARES, 5000))).applied
    free = [sys.executable, "-c", _TRY, str(rig.run / "hook.lock")]
    assert subprocess.run(free, check=False, timeout=60).returncode == 0


_HOLD = """
import os, sys
lock = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o600)
os.lockf(lock, os.F_LOCK, 0)
print(flush=True)
sys.stdin.read()
"""
_TRY = "import os, sys; os.lockf(os.open(sys.argv[1], os.O_WRONLY), os.F_TLOCK, 0)"


def test_a_plan_for_a_level_above_the_root(rig: Rig) -> None:
    report = rig.enforcer.apply(rig.container(), plan((9, SHARES, 600)))
    assert not report.applied
    assert "level 9 is not below the root" in str(report.refusals[0])


def test_the_key_says_whose_it_is(rig: Rig) -> None:
    one = rig.container()
    assert rig.enforcer.apply(one, plan((0, SHARES, 600))).key == ContainerKey(UID, "app")


def test_a_state_of_a_newer_version_is_left_alone_and_nothing_is_put_back(rig: Rig) -> None:
    one = rig.container()
    rig.enforcer.apply(one, plan((2, SHARES, 5000), (0, SHARES, 600)))
    state = rig.run / "originals"
    state.write_text("j10ce-originals\t2\nwhatever they will have\n")
    older = rig.agent()
    older.apply(one, plan((2, SHARES, 4000), (0, SHARES, 500)))
    older.shared()
    older.apply(one, Plan(()))
    list(older.sweep())
    assert rig.read(one.cgroup, SHARES) == "500"
    assert rig.read(above(one.cgroup, 2), SHARES) == "5000"
    assert state.read_text().endswith("whatever they will have\n")


def test_a_pid_that_is_anothers_by_now(kernel_rig: Rig, child: subprocess.Popen[bytes]) -> None:
    one = kernel_rig.container()
    stale = Running(one.key, one.container_id, one.cgroup, child.pid)
    report = kernel_rig.enforcer.apply(stale, of_process(800))
    assert (report.applied, report.gone) == (False, False)
    assert Path(f"/proc/{child.pid}/oom_score_adj").read_text() != "800\n"
    kernel_rig.remove(one.cgroup)
    assert kernel_rig.enforcer.apply(stale, of_process(800)).gone


def test_many_starts_and_stops_leave_nothing(rig: Rig) -> None:
    def sizes() -> tuple[int, ...]:
        enforcer, notes = rig.enforcer, rig.enforcer.writing.notes
        known = len(enforcer), len(enforcer.reports), len(enforcer.wants), len(notes.index)
        return *known, len(notes.originals.paths()), len(list(Path("/proc/self/fd").iterdir()))

    before = sizes()
    for number in range(60):
        uid = f"0a1b2c3d-0000-4000-8000-{number:012}"
        one = rig.container("app", f"{number:064}", uid)
        rig.enforcer.originals.seed(one.cgroup, {SHARES: "204"})
        assert rig.enforcer.apply(one, plan((2, SHARES, 5000), (1, SHARES, 700), (0, SHARES, 600))).applied
        if number % 3:
            rig.enforcer.forget(one.container_id)
        rig.remove(above(one.cgroup, 1))
        if not number % 3:
            assert rig.enforcer.apply(one, plan((0, SHARES, 601))).gone
        rig.enforcer.shared()
        list(rig.enforcer.sweep())
    assert sizes() == before
    assert (rig.run / "originals").stat().st_size < 100_000
    assert rig.read(above(one.cgroup, 2), SHARES) == "1024"


def test_a_shared_sum_that_another_container_raised_costs_no_look(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With each start it changes in the plans of all others."""
    one, two = rig.container(), rig.container("app", OTHER_ID, NEXT_UID)
    tier = above(one.cgroup, 2)
    rig.enforcer.apply(one, plan((2, SHARES, 3000), (0, SHARES, 600)))
    rig.enforcer.apply(two, plan((2, SHARES, 5000), (0, SHARES, 600)))
    monkeypatch.setattr(rig.enforcer.writing, "container", None)
    report = rig.enforcer.apply(one, plan((2, SHARES, 5000), (0, SHARES, 600)))
    assert report.applied
    monkeypatch.undo()
    rig.enforcer.forget(OTHER_ID)
    assert rig.enforcer.shared() == []
    assert rig.read(tier, SHARES) == "5000", "what was only claimed counts as what was written"
    assert rig.enforcer.apply(one, plan((2, SHARES, 7000), (0, SHARES, 600))).written == 1
    assert rig.read(tier, SHARES) == "7000"
