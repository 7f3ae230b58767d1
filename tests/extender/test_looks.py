"""Holds are placed, and pods woken, within one look after a change; while nothing changes looks cost nothing,
and what time alone brings is seen all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import orjson
import pytest

from adapters.api import NODES, PODS, POLICIES
from adapters.kubernetes import decode
from adapters.memory import MemoryAPI
from adapters.serving.readiness import Readiness
from extender.config import ExtenderConfig
from extender.program import HOLDS_SECONDS, LOOK_SECONDS, Program
from qos.cluster.budget import Budget
from qos.cluster.objects import Pod
from tests.extender.conftest import Clock

LARGE = "8"


class Looks:
    """A program whose looks are made by hand, at its own pace; `tended`: when the ledger was."""

    def __init__(self, make_node, make_pod, make_policy, **options) -> None:
        self.clock, self.api = Clock(5.0), MemoryAPI()
        settings = {"identity": "me", "cap_percent": 100, "warmup_seconds": 0, "guard_window_seconds": 60}
        config = ExtenderConfig(**(settings | options))
        self.program = Program(config, self.api, clock=self.clock, wall=self.clock)
        self.program.readiness = Readiness({}, self.clock)
        self.program.readiness.open()
        self.make_node, self.make_pod, self.make_policy = make_node, make_pod, make_policy
        self.tended: list[float] = []
        self._tend = self.program.ledger.tend
        self.program.ledger.tend = self._tend_and_tell  # type: ignore[method-assign]
        self._look = self.program._tend_when_due()
        self.program.catalog.open()
        for name in ("n1", "n2"):
            self.node(name)
        self.policy()

    def _tend_and_tell(self) -> bool:
        self.tended.append(self.clock())
        return self._tend()

    def node(self, name: str, ready: bool = True) -> None:
        made = decode.node(orjson.dumps(self.api.put(NODES, self.make_node(name))))
        self.program.ledger.set_node(replace(made, ready=ready))

    def pod(self, name: str, **more) -> Pod:
        return decode.pod(orjson.dumps(self.api.put(PODS, self.make_pod(name, **more))))

    def policy(self, **spec) -> None:
        stored = self.api.put(POLICIES, self.make_policy(**spec))
        self.program.catalog.set_policy(decode.policy(orjson.dumps(stored)))

    def held(self) -> dict[str, int]:
        (holding,) = (one for one in self.program.ledger.gather_holdings() if one is not None)
        return dict(holding.nodes)

    async def look(self) -> bool:
        """Whether the next look, which is a while later, tends."""
        self.clock.advance(HOLDS_SECONDS)
        before = len(self.tended)
        await self._look()
        await self.program.waker.run_once()
        return len(self.tended) > before

    async def rest(self) -> None:
        """Until nothing is left to do, right after a look that has tended."""
        for _ in range(100):
            await self.look()
        for _ in range(10):
            if await self.look():
                return


@pytest.fixture
def looks(make_node, make_pod, make_policy) -> Looks:
    return Looks(make_node, make_pod, make_policy)


async def test_looks_do_nothing_while_nothing_changes(looks):
    await looks.rest()
    most = round(LOOK_SECONDS / HOLDS_SECONDS)
    tended = [await looks.look() for _ in range(10 * most)]
    assert sum(tended) in (9, 10, 11), "twice a second, for what time alone brings"


async def test_a_pod_that_was_refused_costs_no_more_looks_while_nothing_changes(looks):
    await looks.rest()
    large = looks.pod("large", cpu=LARGE)
    looks.program.ledger.set_pod(large)
    assert not looks.program.ledger.filter(large, ["n1", "n2"], looks.clock()).nodes
    await looks.rest()
    assert not await looks.look()


def _binding_fails(looks: Looks) -> None:
    ledger, small = looks.program.ledger, looks.pod("small")
    (node, *_) = ledger.filter(small, ["n1", "n2"], looks.clock()).nodes
    assert not ledger.bind(small, node, looks.clock()).refusal
    ledger.release(small.uid)


CHANGES: Iterable[tuple[str, Callable[[Looks], object]]] = (
    ("a node", lambda looks: looks.node("n3")),
    ("a node is not ready", lambda looks: looks.node("n1", ready=False)),
    ("a node is gone", lambda looks: looks.program.ledger.remove_node("n1")),
    ("a pod runs", lambda looks: looks.program.ledger.set_pod(looks.pod("p", node="n1"))),
    ("a policy", lambda looks: looks.policy(count=3)),
    ("a policy is gone", lambda looks: looks.program.catalog.remove_policy("default/checkout")),
    ("a budget", lambda looks: looks.program.ledger.set_budget(Budget("all", total={"cpu": 2_000}))),
    ("a volume", lambda looks: looks.program.catalog._due.setdefault("default/checkout")),
    ("a Binding fails", _binding_fails),
    ("a pod waits to be woken", lambda looks: looks.program.waker.add([looks.pod("p")])),
)


@pytest.mark.parametrize("change", [change for _, change in CHANGES], ids=[name for name, _ in CHANGES])
async def test_a_change_is_tended_within_one_look(looks, change):
    await looks.rest()
    assert not await looks.look()
    change(looks)
    assert await looks.look()


async def test_a_node_that_is_not_ready_for_long_loses_its_owners_though_nothing_else_happens(looks):
    """And time is what the ledger was told last, as exactly as ever."""
    looks.program.ledger.set_pod(looks.pod("checkout-1", app="checkout", cpu="2", node="n1"))
    await looks.rest()
    assert sum(looks.held().values()) == 1
    looks.node("n1", ready=False)
    until = looks.clock() + looks.program.config.not_ready_seconds + HOLDS_SECONDS
    while sum(looks.held().values()) == 1 and looks.clock() < until + 10:
        await looks.look()
        assert looks.program.ledger._state.now == looks.clock()
    assert until - 2 * HOLDS_SECONDS <= looks.clock() <= until + LOOK_SECONDS + HOLDS_SECONDS


async def test_a_policy_ends_in_time_though_nothing_else_happens(looks):
    looks.policy(ttlSeconds=60)
    await looks.rest()
    assert sum(looks.held().values()) == 2
    policy = looks.program.catalog.policies["default/checkout"]
    assert policy.expires is not None
    looks.clock.now = policy.expires - HOLDS_SECONDS / 2
    for _ in range(1 + round(LOOK_SECONDS / HOLDS_SECONDS)):
        await looks.look()
    assert not looks.held()


async def test_who_waits_is_looked_after_though_tending_fails_or_takes_long(looks):
    program = looks.program
    await looks.rest()
    program._tended.clear()
    told = []

    def steps():
        for _ in range(10):
            looks.clock.advance(0.1)
            yield
            told.append(program._tended._event.is_set())
        raise ValueError("a bug")

    program._tend_in_steps = steps
    with pytest.raises(ValueError, match="a bug"):
        await program._tend()
    assert told.index(True) < 3
    assert program._tended._event.is_set()
