"""Plans, others' writes and restarts in any order, real and plain files: ours while planned, else theirs."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.enforcement.repair import Repairer
from agent.state import Running
from tests.agent.enforcement.conftest import Rig, above, plan

SHARES = "cpu.shares"
LEVELS = 3
IDS = ("a" * 64, "b" * 64)
UIDS = ("0a1b2c3d-0000-4000-8000-00000000000a", "0a1b2c3d-0000-4000-8000-00000000000b")

values = st.sampled_from([100, 204, 1024, 3000, 5000])
steps = st.one_of(
    st.tuples(st.just("plan"), st.integers(0, 1), st.dictionaries(st.integers(0, LEVELS - 1), values)),
    st.tuples(st.just("kubelet"), st.integers(0, 1), st.integers(0, LEVELS - 1), values),
    st.tuples(st.just("while away"), st.integers(0, 1), st.integers(0, 1), values),
    st.tuples(st.just("restart")),
    st.tuples(st.just("refused"), st.integers(0, 1), st.booleans()),
)


@dataclass
class Model:
    """What must be there: `theirs` by path, `plans` by container."""

    rig: Rig
    containers: list[Running]
    theirs: dict[str, int] = field(default_factory=dict)
    plans: list[dict[int, int]] = field(default_factory=lambda: [{}, {}])

    def path(self, container: int, level: int) -> str:
        return above(self.containers[container].cgroup, level)

    def expected(self, path: str) -> int:
        """Ours where it is planned; in what is shared the most that anybody wants."""
        theirs = self.theirs.get(path, 1024)
        ours = [
            (level, value)
            for container, planned in enumerate(self.plans)
            for level, value in planned.items()
            if self.path(container, level) == path
        ]
        shared = [value for level, value in ours if level > 1]
        return max(theirs, *shared) if shared else ours[0][1] if ours else theirs

    def all_paths(self) -> set[str]:
        return {self.path(container, level) for container in (0, 1) for level in range(LEVELS)}

    def step(self, kind: str, *arguments: object) -> None:
        repairer = Repairer(self.rig.enforcer, lambda _: None, lambda _: None)
        if kind == "plan":
            container, planned = arguments
            self.plans[container] = dict(planned)  # type: ignore[call-overload, index]
        elif kind == "restart":
            self.rig.agent()
        elif kind == "refused":
            self.refused(*arguments)  # type: ignore[arg-type]
        else:
            container, level, value = arguments
            path = self.path(container, level)  # type: ignore[arg-type]
            if self.rig.read(path, SHARES) != str(value):  # the same value says nothing
                self.theirs[path] = value  # type: ignore[assignment]
            self.rig.write(path, SHARES, value)
            if kind == "kubelet":
                repairer.mend(path, {(path, SHARES): "kubelet"})
            else:
                self.rig.agent()
        self.rig.clock.now += 3600  # no fights

    def refused(self, container: int, restarted: bool) -> None:
        """A plan that the kernel does not take, and others' not applied yet, change nothing."""
        enforcer = self.rig.agent() if restarted else self.rig.enforcer
        before = {path: self.rig.read(path, SHARES) for path in self.all_paths()}
        assert not enforcer.apply(self.containers[container], plan((0, "cpuset.cpus", "4000"))).applied
        enforcer.shared()
        list(enforcer.sweep(UIDS if restarted else ()))
        assert {path: self.rig.read(path, SHARES) for path in self.all_paths()} == before

    def reconcile(self) -> None:
        for running, planned in zip(self.containers, self.plans, strict=True):
            asked = plan(*((level, SHARES, value) for level, value in planned.items()))
            assert self.rig.enforcer.apply(running, asked).applied
        self.rig.enforcer.shared()
        list(self.rig.enforcer.sweep())


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(steps, max_size=8))
def test_ours_while_planned_and_theirs_else(rig: Rig, taken: list[tuple[object, ...]]) -> None:
    model = Model(rig, [rig.container("app", *pair) for pair in zip(IDS, UIDS, strict=True)])
    for path in model.all_paths():
        rig.write(path, SHARES, 1024)
    (rig.run / "originals").unlink(missing_ok=True)
    rig.agent()
    for kind, *arguments in taken:
        model.step(str(kind), *arguments)
        model.reconcile()
        for path in model.all_paths():
            assert rig.read(path, SHARES) == str(model.expected(path)), (path, taken)
    model.plans = [{}, {}]
    model.reconcile()
    assert {path: int(rig.read(path, SHARES)) for path in model.all_paths()} == {
        path: model.theirs.get(path, 1024) for path in model.all_paths()
    }
    assert dict(rig.enforcer.originals) == {}
