"""In mode Observe what cannot be taken away keeps nothing else from going."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from adapters.api import PODS, APIError, Unreachable
from adapters.loops import Changes
from adapters.memory import MemoryAPI
from extender import leaving
from extender.leaving import Leaving
from extender.metrics import Metrics
from extender.standing import Gated, Standing
from qos import keys
from qos.cluster.objects import NodePredicate, Pod
from qos.cluster.placeholders import Placeholder
from qos.cluster.refusals import FIRST_SECONDS
from tests.fake_time import FakeTime

DENIED = APIError(403, "Forbidden", "admission is against it")
BROKEN = APIError(500, "InternalError", "failed calling webhook")


class Observer:
    """Placeholders and gated owners that are left; `fails`: what is answered, by the pod's name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, placeholders: int, owners: int) -> None:
        self.api, self.time, self.changes = MemoryAPI(), FakeTime(), Changes(0.0)
        self.fails: dict[str, Exception] = {}
        self.tried: list[str] = []
        self.standing = Standing("holds", lambda: None, self.time)
        for number in range(placeholders):
            self._placeholder(f"hold-{number}")
        for number in range(owners):
            self._owner(f"owner-{number}")
        for verb in ("delete", "patch"):
            monkeypatch.setattr(self.api, verb, self._answered(getattr(self.api, verb)))
        self.leaving = Leaving(
            self.api, self.standing, Metrics(), self.changes, namespace="holds", clock=self.time
        )

    async def rounds(self, count: int) -> None:
        for _ in range(count):
            self.changes.note()
            await self.leaving.run_once()

    def left(self) -> list[str]:
        """Names of the placeholders that are there, and of the owners that are gated."""
        pods = self.api.objects(PODS)
        there = [one for one in pods if one["metadata"]["namespace"] == "holds"]
        return sorted(one["metadata"]["name"] for one in [*there, *filter(is_gated, pods)])

    def _placeholder(self, name: str) -> None:
        metadata = {"name": name, "namespace": "holds"}
        made = self.api.put(PODS, {"metadata": metadata, "spec": {"terminationGracePeriodSeconds": 0}})
        self.standing.put(Placeholder(made["metadata"]["uid"], name, "default/a", "form", "n1", bound=True))

    def _owner(self, name: str) -> None:
        gates = [{"name": keys.HAND_OVER_GATE}]
        made = self.api.put(
            PODS, {"metadata": {"name": name, "namespace": "default"}, "spec": {"schedulingGates": gates}}
        )
        pod = Pod(made["metadata"]["uid"], "default", name, {})
        self.standing.gated[pod.uid] = Gated(pod, (keys.HAND_OVER_GATE,), NodePredicate())

    def _answered(self, call: Callable[..., object]) -> Callable[..., object]:
        async def answered(resource: object, namespace: str, name: str, *rest: object, **options: object):
            self.tried.append(name)
            if name in self.fails:
                raise self.fails[name]
            return await call(resource, namespace, name, *rest, **options)

        return answered


def is_gated(pod: dict[str, dict[str, object]]) -> bool:
    return bool(pod["spec"].get("schedulingGates"))


async def test_gates_are_lifted_when_all_placeholders_are_gone(monkeypatch):
    observer = Observer(monkeypatch, 2, 2)
    await observer.rounds(2)
    assert observer.tried == ["hold-0", "hold-1", "owner-0", "owner-1"]
    assert not observer.left()


async def test_gates_wait_for_a_placeholder_whose_turn_has_not_come(monkeypatch):
    monkeypatch.setattr(leaving, "_A_ROUND", 2)
    observer = Observer(monkeypatch, 3, 1)
    observer.fails = {"hold-0": DENIED, "hold-1": DENIED}
    await observer.rounds(1)
    assert observer.tried == ["hold-0", "hold-1"]


async def test_a_placeholder_that_may_not_be_deleted_keeps_no_gate_from_being_lifted(monkeypatch):
    observer = Observer(monkeypatch, 3, 2)
    observer.fails = {"hold-0": DENIED}
    await observer.rounds(3)
    assert observer.left() == ["hold-0"]
    assert observer.tried.count("hold-0") == 1
    observer.fails.clear()
    observer.time.now += FIRST_SECONDS
    await observer.rounds(1)
    assert not observer.left()


@pytest.mark.parametrize("error", [BROKEN, Unreachable("no answer")])
async def test_nor_does_one_whose_deletion_fails_three_times(monkeypatch, error):
    observer = Observer(monkeypatch, 3, 2)
    observer.fails = {"hold-0": error}
    await observer.rounds(2)
    assert observer.left() == ["hold-0", "owner-0", "owner-1"]
    await observer.rounds(1)
    assert observer.left() == ["hold-0"]


@pytest.mark.parametrize("error", [DENIED, BROKEN])
@pytest.mark.parametrize(("placeholders", "owners", "name"), [(5, 0, "hold"), (0, 5, "owner")])
async def test_those_that_fail_first_keep_no_others_from_their_turn(
    monkeypatch, error, placeholders, owners, name
):
    monkeypatch.setattr(leaving, "_A_ROUND", 2)
    observer = Observer(monkeypatch, placeholders, owners)
    observer.fails = {f"{name}-0": error, f"{name}-1": error}
    await observer.rounds(3)
    assert observer.left() == [f"{name}-0", f"{name}-1"]
