"""The ledger against a slow obvious account: whatever happens, in any order, the invariants hold."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ledger.decisions import BindDecision, DemandReport, Mode
from ledger.ledger import Ledger
from qos.cluster.needs import Enforcement
from qos.cluster.objects import Demand, Node, PlacementMode, Pod
from tests.ledger.builders import demand, node, pod
from tests.ledger.careful import Careful
from tests.ledger.recount import check_columns

NODES = [f"n{i}" for i in range(4)]
APPS = ("a", "b", "c")
DIMS = ("cpu", "memory", "pods")
NEEDS = frozenset({"memory_min_percent"})
CPU = st.integers(1, 5)
MEMORY = st.integers(1, 6)


class Account:
    """Nodes, claims and demands in plain dicts, counted anew each time."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.claims: dict[str, tuple[Pod, str]] = {}
        self.demands: dict[str, Demand] = {}
        self.able: set[str] = set()

    def may_hold(self, record: Demand, name: str) -> bool:
        return self.nodes[name].ready and (record.needs is None or name in self.able)

    def free(self, name: str) -> dict[str, int]:
        there = [p.requests for p, on in self.claims.values() if on == name]
        allocatable = self.nodes[name].allocatable
        return {d: allocatable.get(d, 0) - sum(r.get(d, 0) for r in there) for d in DIMS}

    def order(self) -> list[Demand]:
        return sorted(self.demands.values(), key=lambda d: (-d.priority, d.created, d.key))

    def owner(self, who: Pod) -> str:
        return next((d.key for d in self.order() if d.key == f"default/{who.labels.get('app')}"), "")

    def filled(self, key: str, name: str | None = None) -> int:
        there = [p for p, on in self.claims.values() if on in self.nodes and name in (None, on)]
        return sum(self.owner(p) == key for p in there)


class Machine(RuleBasedStateMachine):
    """Watch events and verbs in any order, in Strict mode."""

    mode = Mode.STRICT
    most_demands = 3
    cap = 60
    make: type[Ledger] = Careful

    def __init__(self) -> None:
        super().__init__()
        self.account = Account()
        self.ledger = self.make(self.mode, cap_percent=self.cap)
        self.pods: dict[str, Pod] = {}
        self.offered: dict[str, list[str]] = {}
        self.bypassed = False
        self.number = 0
        self.now = 0.0

    @initialize(cpu=st.lists(st.integers(4, 16), min_size=2, max_size=4))
    def start(self, cpu: list[int]) -> None:
        for name, cores in zip(NODES, cpu, strict=False):
            self.set_node(name, cores, 16, True)

    @rule(name=st.sampled_from(NODES), cpu=st.integers(2, 16), memory=st.integers(4, 20), ready=st.booleans())
    def set_node(self, name: str, cpu: int, memory: int, ready: bool) -> None:
        made = node(name, cpu, memory, pods=6, ready=ready)
        self.account.nodes[name] = made
        self.ledger.set_node(made)

    @rule(name=st.sampled_from(NODES))
    def remove_node(self, name: str) -> None:
        self.account.nodes.pop(name, None)
        self.ledger.remove_node(name)

    @rule(name=st.sampled_from(NODES), able=st.sampled_from((True, True, False, None)))
    def say(self, name: str, able: bool | None) -> None:
        """A node says what it enforces: all, nothing, or no longer anything."""
        (self.account.able.add if able else self.account.able.discard)(name)
        said = Enforcement(NEEDS) if able else Enforcement()
        self.ledger.set_enforcement(name, None if able is None else said)

    @rule(
        app=st.sampled_from(APPS),
        desired=st.integers(0, 5),
        slot=st.tuples(CPU, MEMORY),
        priority=st.sampled_from((0, 10)),
        mode=st.sampled_from(PlacementMode),
        most=st.sampled_from((None, None, 1, 2)),
        needs=st.sampled_from((None, None, NEEDS)),
    )
    def set_demand(
        self,
        app: str,
        desired: int,
        slot: tuple[int, int],
        priority: int,
        mode: PlacementMode,
        most: int | None,
        needs: frozenset[str] | None,
    ) -> None:
        created = 1.0 + APPS.index(app)
        made = demand(
            app,
            desired,
            *slot,
            priority=priority,
            mode=mode,
            max_slots_per_node=most,
            created=created,
            needs=needs,
        )
        if made.key in self.account.demands or len(self.account.demands) < self.most_demands:
            self.account.demands[made.key] = made
            self.ledger.set_demand(made)

    @rule(app=st.sampled_from(APPS))
    def remove_demand(self, app: str) -> None:
        self.account.demands.pop(f"default/{app}", None)
        self.ledger.remove_demand(f"default/{app}")

    @rule(
        app=st.sampled_from(("", "", *APPS)), cpu=CPU, memory=MEMORY, priority=st.sampled_from((0, 0, 5, 50))
    )
    def new_pod(self, app: str, cpu: int, memory: int, priority: int) -> None:
        self.number += 1
        made = pod(f"p{self.number}", cpu, memory, app=app, priority=priority)
        self.pods[made.uid] = made
        self.ledger.set_pod(made)

    @rule(
        app=st.sampled_from(("", "", *APPS)), cpu=CPU, memory=MEMORY, priority=st.sampled_from((0, 0, 5, 50))
    )
    def schedule(self, app: str, cpu: int, memory: int, priority: int) -> None:
        """Bound at once, a pod gets what it was answered, and costs no slot of a policy that it sees."""
        self.new_pod(app, cpu, memory, priority)
        who = self.pods[f"p{self.number}"]
        offered = self._filter(who)
        if offered:
            decision = self._bind(who, offered[0])
            assert not decision.refusal
            assert decision.unplaced == 0 or priority > self._lowest()

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def filter(self, data: st.DataObject) -> None:
        who = self.pods[data.draw(st.sampled_from(sorted(self.pods)))]
        if who.uid not in self.account.claims:
            self.offered[who.uid] = self._filter(who)

    def _filter(self, who: Pod) -> list[str]:
        fitting = [name for name in NODES if self._in_tree(who, name)]
        asked = [*fitting, "unknown"]
        answer = self.ledger.filter(who, asked, self.now)
        assert set(answer.nodes) <= set(fitting)
        owner = self.account.demands.get(self.account.owner(who))
        if owner is not None and owner.needs is not None:
            assert set(answer.nodes) <= self.account.able
        assert bool(answer.nodes) != bool(answer.message or answer.others)
        assert all(answer.refused(asked).values())
        assert answer.resolvable <= set(answer.others) <= set(asked)
        return answer.nodes

    def _in_tree(self, who: Pod, name: str) -> bool:
        there = self.account.nodes.get(name)
        return there is not None and all(who.requests[d] <= self.account.free(name)[d] for d in DIMS)

    @precondition(lambda self: self.offered)
    @rule(data=st.data())
    def bind(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.offered)))
        offered = self.offered.pop(uid)
        if offered and uid in self.pods:
            self._bind(self.pods[uid], data.draw(st.sampled_from(offered)))

    def _bind(self, who: Pod, on: str) -> BindDecision:
        """A pod that sees every hold costs no slot in Strict."""
        before = sum(report.missing for report in self.ledger.report().values())
        decision = self.ledger.bind(who, on, self.now)
        if decision.refusal:
            return decision
        self.account.claims[who.uid] = (who, on)
        if self.mode is Mode.STRICT and who.priority <= self._lowest():
            assert decision.unplaced == 0
            assert sum(report.missing for report in self.ledger.report().values()) <= before
        return decision

    def _lowest(self) -> int:
        return min((d.priority for d in self.account.demands.values()), default=0)

    @precondition(lambda self: self.account.claims)
    @rule(data=st.data(), seen=st.booleans())
    def confirm(self, data: st.DataObject, seen: bool) -> None:
        uid = data.draw(st.sampled_from(sorted(self.account.claims)))
        who, on = self.account.claims[uid]
        self.ledger.bound(uid, on)
        if seen:
            self.ledger.set_pod(replace(who, node_name=on))

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def remove_pod(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.pods)))
        del self.pods[uid]
        self.account.claims.pop(uid, None)
        self.offered.pop(uid, None)
        self.ledger.remove_pod(uid)

    @rule(name=st.sampled_from(NODES), cpu=CPU, memory=MEMORY)
    def bypass(self, name: str, cpu: int, memory: int) -> None:
        self.number += 1
        made = pod(f"p{self.number}", cpu, memory, node=name)
        self.pods[made.uid] = made
        self.account.claims[made.uid] = (made, name)
        self.ledger.set_pod(made)

    @rule()
    def look_who_would_pass(self) -> None:
        self.ledger.waiting(self.now)

    @invariant()
    def who_would_pass_is_looked_for(self) -> None:
        """Where the ledger says that nobody is to be judged again, nobody would pass."""
        assert self.ledger.may_wake(self.now) or not self.ledger.waiting(self.now)

    @invariant()
    def holds_fit(self) -> None:
        """What is held on a node is free there, in every dimension, on nodes that may hold it only."""
        for key, report in self.ledger.report().items():
            for name, _ in report.holds:
                assert self.account.may_hold(self.account.demands[key], name)
        held = self._held()
        for name, amounts in held.items():
            free = self.account.free(name)
            assert all(amounts[d] <= max(0, free[d]) for d in DIMS), (name, amounts, free)

    @invariant()
    def counts_add_up(self) -> None:
        """Each slot is filled, held or unplaced with a reason; maxSlotsPerNode is kept."""
        for key, report in self.ledger.report().items():
            record = self.account.demands[key]
            assert report.filled == min(record.desired, self.account.filled(key))
            assert report.filled + report.held + report.missing == report.desired
            assert all(entry.count > 0 and entry.reason for entry in report.unplaced)
            for name, count in report.holds:
                most = record.max_slots_per_node
                assert most is None or count + self.account.filled(key, name) <= most

    @invariant()
    def cap_holds(self) -> None:
        """All holds together stay below the cap."""
        ready = [n for n in self.account.nodes.values() if n.ready]
        for d in DIMS:
            total = sum(amounts[d] for amounts in self._held().values())
            assert total * 100 <= sum(n.allocatable[d] for n in ready) * self.cap

    @invariant()
    def no_room_is_left_for_an_unplaced_slot(self) -> None:
        """A slot that fits on a node as things are is held, and no later demand is held in its place."""
        order = self.account.order()
        reports = self.ledger.report()
        charged = self.ledger.gauges()["in_flight"]
        for position, record in enumerate(order):
            missing = sum(u.count for u in reports[record.key].unplaced if u.reason != "CapReached")
            if missing and not charged:
                later = {d.key for d in order[position + 1 :]}
                assert not self._somewhere(record, reports, later), (record, reports)

    def _somewhere(self, record: Demand, reports: dict, later: set[str]) -> bool:
        return any(self._fits_besides(record, name, reports, later) for name in self.account.nodes)

    def _fits_besides(self, record: Demand, name: str, reports: dict, later: set[str]) -> bool:
        if not self.account.may_hold(record, name):
            return False
        there = {key: dict(r.holds).get(name, 0) for key, r in reports.items()}
        most = record.max_slots_per_node
        if most is not None and there[record.key] + self.account.filled(record.key, name) >= most:
            return False
        vectors = {d.key: d.vector for d in self.account.demands.values()}
        free = self.account.free(name)
        return all(
            free[d] - sum(n * vectors[k].get(d, 0) for k, n in there.items() if k not in later)
            >= record.vector[d]
            for d in DIMS
        )

    def _held(self) -> dict[str, dict[str, int]]:
        held: dict[str, dict[str, int]] = {}
        for key, report in self.ledger.report().items():
            vector = self.account.demands[key].vector
            for name, count in report.holds:
                amounts = held.setdefault(name, dict.fromkeys(DIMS, 0))
                for d in DIMS:
                    amounts[d] += count * vector[d]
        return held

    @invariant()
    def claims_are_counted_once(self) -> None:
        """The account of claimed capacity is the sum over the pods, each once."""
        gauges = self.ledger.gauges()
        claimed = sum(p.requests["cpu"] for p, on in self.account.claims.values())
        assert gauges["claims"] == len(self.account.claims)
        if all(on in self.account.nodes for _, on in self.account.claims.values()):
            assert gauges.get("claimed/cpu", 0) == claimed

    @invariant()
    def columns_equal_a_recount(self) -> None:
        """What follows each change equals what is summed anew."""
        check_columns(self.ledger)

    @invariant()
    def a_restart_ends_in_a_right_state(self) -> None:
        """T05: rebuilt from nodes, pods and demands, in another order, the same slots are filled."""
        if self.number % 5:
            return
        rebuilt = Ledger(self.mode, cap_percent=self.cap)
        for who, on in reversed(self.account.claims.values()):
            rebuilt.set_pod(replace(who, node_name=on))
        for record in reversed(self.account.demands.values()):
            rebuilt.set_demand(record)
        for made in reversed(self.account.nodes.values()):
            rebuilt.set_node(made)
        for name in sorted(self.account.able):
            rebuilt.set_enforcement(name, Enforcement(NEEDS))
        assert {k: r.filled for k, r in rebuilt.report().items()} == {
            k: r.filled for k, r in self.ledger.report().items()
        }


class GuardMachine(Machine):
    """The same in Guard mode: bind never refuses, holds give way."""

    mode = Mode.GUARD


class Impatient(Careful):
    """A ledger that, asked for a report, goes on until all demands had their turn."""

    def report(self) -> dict[str, DemandReport]:
        for _ in range(1_000):
            if not self.tend():
                return super().report()
        raise AssertionError("it never ends")


class ImpatientMachine(GuardMachine):
    """One demand is placed at a time, in the verbs and beside them: that ends in a right state, too."""

    make = Impatient

    def __init__(self) -> None:
        self.patch = patch("ledger.retries._ROWS_VISITED", 1)
        self.patch.start()
        super().__init__()

    def teardown(self) -> None:
        self.patch.stop()


class OneDemandMachine(Machine):
    """One shape: whatever the order of events, the number of held slots is what counting says."""

    most_demands = 1
    cap = 100

    @invariant()
    def every_feasible_slot_is_held(self) -> None:
        for key, report in self.ledger.report().items():
            record = self.account.demands[key]
            if self.ledger.gauges()["in_flight"]:
                continue
            places = sum(self._slots(record, name) for name in self.account.nodes)
            wanted = max(0, record.desired - self.account.filled(key))
            total = {d: sum(n.allocatable[d] for n in self.account.nodes.values() if n.ready) for d in DIMS}
            allowed = min(total[d] // record.vector[d] for d in DIMS)
            assert report.held == min(wanted, places, allowed)

    def _slots(self, record: Demand, name: str) -> int:
        if not self.account.may_hold(record, name):
            return 0
        free = self.account.free(name)
        fit = max(0, min(free[d] // record.vector[d] for d in DIMS))
        most = record.max_slots_per_node
        return fit if most is None else max(0, min(fit, most - self.account.filled(record.key, name)))


_SETTINGS = settings(
    max_examples=settings().max_examples // 2,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestStrict = Machine.TestCase
TestStrict.settings = _SETTINGS
TestGuard = GuardMachine.TestCase
TestGuard.settings = _SETTINGS
TestImpatient = ImpatientMachine.TestCase
TestImpatient.settings = _SETTINGS
TestOneShape = OneDemandMachine.TestCase
TestOneShape.settings = _SETTINGS
