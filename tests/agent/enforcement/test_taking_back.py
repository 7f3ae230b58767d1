"""What is in effect stays until all is known and the newest plans are in effect; real and plain v1."""

from __future__ import annotations

from agent.enforcement.repair import Repairer
from agent.state import Running
from qos.plan.settings import Plan
from tests.agent.enforcement.conftest import UID, Rig, above, another_writes, plan

SHARES, SOFT = "cpu.shares", "memory.soft_limit_in_bytes"
OTHER_ID = "d" * 64
NEXT_UID = "0a1b2c3d-0000-4000-8000-000000000002"
FLOORS = (2, SHARES, 5000), (1, SHARES, 700), (0, SHARES, 600)
REFUSED = (0, "cpuset.cpus", "4000")


def shares(rig: Rig, one: Running) -> list[str]:
    return [rig.read(above(one.cgroup, up), SHARES) for up in range(3)]


def applied(rig: Rig) -> Running:
    one = rig.container()
    for up in range(2):
        rig.write(above(one.cgroup, up), SHARES, 204)
    assert rig.enforcer.apply(one, plan(*FLOORS)).applied
    return one


def test_a_plan_that_is_refused_after_a_restart_costs_no_floor(rig: Rig) -> None:
    one = applied(rig)
    agent = rig.agent()
    assert not agent.apply(one, plan(*FLOORS, REFUSED)).applied
    assert agent.refused()
    assert list(agent.sweep()) == []
    assert shares(rig, one) == ["600", "700", "5000"]
    assert agent.apply(one, plan((0, SHARES, 600))).applied
    assert not agent.refused()
    list(agent.sweep())
    assert shares(rig, one) == ["600", "204", "1024"]


def test_a_container_that_is_not_known_yet_after_a_restart_keeps_its_floor(rig: Rig) -> None:
    one = applied(rig)
    list(rig.agent().sweep({UID}, {above(one.cgroup, 1)}))
    assert shares(rig, one) == ["600", "700", "5000"]


def test_what_the_hook_gave_is_not_taken_back_because_the_agent_was_refused(rig: Rig) -> None:
    one = rig.container()
    another_writes(rig.file(one.cgroup, SOFT), str(1 << 20))
    assert not rig.enforcer.apply(one, plan((0, SOFT, 1 << 20), REFUSED)).applied
    list(rig.enforcer.sweep())
    assert rig.read(one.cgroup, SOFT) == str(1 << 20)


def test_while_one_is_refused_nothing_shared_is_lowered(rig: Rig) -> None:
    one, two = applied(rig), rig.container("app", OTHER_ID, NEXT_UID)
    assert rig.enforcer.apply(two, plan((2, SHARES, 7000))).applied
    assert not rig.enforcer.apply(one, plan(REFUSED)).applied
    assert rig.enforcer.apply(two, plan((2, SHARES, 3000))).applied
    assert rig.enforcer.shared() == []
    rig.enforcer.forget(one.container_id)
    assert rig.enforcer.shared(take_back=False) == []
    assert rig.read(above(one.cgroup, 2), SHARES) == "7000"
    rig.enforcer.shared()
    assert rig.read(above(one.cgroup, 2), SHARES) == "3000"


def test_a_plan_made_before_all_is_known_takes_nothing_back(rig: Rig) -> None:
    one = applied(rig)
    for restarted in (False, True):
        agent = rig.agent() if restarted else rig.enforcer
        assert agent.apply(one, Plan(()), take_back=False).applied
        assert agent.apply(one, plan((0, SHARES, 601)), take_back=False).applied
        assert agent.shared(take_back=False) == []
        assert shares(rig, one) == ["601", "700", "5000"]
    assert rig.enforcer.apply(one, Plan(())).applied
    list(rig.enforcer.sweep())
    assert shares(rig, one) == ["204", "204", "1024"]


def test_an_old_weight_does_not_hinder_a_cgroup_that_shall_be_idle(rig: Rig) -> None:
    one = applied(rig)
    assert rig.enforcer.apply(one, plan((0, "cpu.idle", 1)), take_back=False).applied
    assert rig.read(one.cgroup, "cpu.idle") == "1"


def test_one_that_was_refused_and_is_gone_hinders_nobody(rig: Rig) -> None:
    one = rig.container()
    assert not rig.enforcer.apply(one, plan(REFUSED)).applied
    rig.remove(one.cgroup)
    assert list(Repairer(rig.enforcer, lambda _: None, lambda _: None).check()) == [""]
    assert not rig.enforcer.refused()


def test_a_disk_that_is_gone_costs_a_container_nothing_else(kernel_rig: Rig) -> None:
    one = kernel_rig.container()
    limit, nobodys = "blkio.throttle.read_bps_device", "4095:9"
    report = kernel_rig.enforcer.apply(one, plan((0, "cpu.shares", 600), (0, limit, f"{nobodys} 1048576")))
    assert (report.applied, report.refusals) == (True, ())
    assert kernel_rig.read(one.cgroup, "cpu.shares") == "600"
    assert kernel_rig.enforcer.apply(one, plan((0, "cpu.shares", 600))).applied, (
        "and nothing is left to put back"
    )
    list(kernel_rig.enforcer.sweep())
    assert [place.key for place in kernel_rig.enforcer.originals.at(one.cgroup)] == ["cpu.shares"]
