"""Whatever happens, in any order: the account says what one made anew says, and what a slow model says."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from qos import keys
from qos.cluster.objects import Pod
from qos.cluster.quota import ElasticQuota
from quota.account import Account, Standing, origin_of
from tests.quota import model
from tests.quota.builders import NAMESPACE, pod, quota

NAMES = ("a", "b", "c", "d", "e")
RESOURCES = ("cpu", "memory")
SOME = st.integers(0, 20)
NAMED = st.sampled_from([*NAMES, ""])


class Machine(RuleBasedStateMachine):
    """Quotas, pods, floors and nodes come, change and go; some are asked for in between."""

    def __init__(self) -> None:
        super().__init__()
        self.account = Account()
        self.quotas: dict[str, ElasticQuota] = {}
        self.pods: dict[str, tuple[Pod, bool]] = {}
        self.floors: dict[str, tuple[str, dict[str, int]]] = {}
        self.total: dict[str, int] = {}

    @rule(
        name=st.sampled_from(NAMES),
        parent=NAMED,
        least=st.tuples(SOME, SOME),
        more=st.tuples(SOME, SOME),
        weight=st.tuples(st.integers(0, 3), st.integers(0, 3)),
        named=st.sampled_from([RESOURCES, RESOURCES, RESOURCES, ("cpu",)]),
        lends=st.booleans(),
        tree=st.sampled_from(["", "", "t"]),
        total=st.one_of(st.none(), st.integers(0, 40)),
        beside=st.booleans(),
    )
    def put(
        self,
        name: str,
        parent: str,
        least: tuple[int, int],
        more: tuple[int, int],
        weight: tuple[int, int],
        named: tuple[str, ...],
        lends: bool,
        tree: str,
        total: int | None,
        beside: bool,
    ) -> None:
        low = dict(zip(named, least, strict=False))
        high = {each: low[each] + extra for each, extra in zip(named, more, strict=False)}
        root = {"is_root": total is not None, "total": None if total is None else {"cpu": total}}
        weights = dict(zip(named, weight, strict=False))
        one = quota(
            name, high, low, weight=weights, parent=parent, lends=lends, tree=tree, beside=beside, **root
        )
        self.quotas[name] = one
        self.account.change([one])

    @rule(name=st.sampled_from(NAMES))
    def drop(self, name: str) -> None:
        if self.quotas.pop(name, None) is not None:
            self.account.change(drop=[f"{NAMESPACE}/{name}"])

    @rule(
        number=st.integers(0, 9),
        of=st.sampled_from([*NAMES, "", keys.SYSTEM_QUOTA]),
        asks=st.tuples(SOME, SOME),
        bound=st.booleans(),
        firm=st.booleans(),
    )
    def count(self, number: int, of: str, asks: tuple[int, int], bound: bool, firm: bool) -> None:
        one = pod(str(number), dict(zip(RESOURCES, asks, strict=True)), of=of, firm=firm)
        self.pods[one.uid] = one, bound
        self.account.count(one, bound=bound)

    @rule(number=st.integers(0, 9))
    def forget(self, number: int) -> None:
        self.pods.pop(f"uid-{number}", None)
        self.account.forget(f"uid-{number}")

    @rule(policy=st.sampled_from("xyz"), of=NAMED, holds=st.tuples(SOME, SOME))
    def hold(self, policy: str, of: str, holds: tuple[int, int]) -> None:
        amounts = dict(zip(RESOURCES, holds, strict=True))
        self.floors[policy] = of, amounts
        self.account.hold(policy, ("pods", of), amounts)

    @rule(total=st.tuples(st.integers(0, 80), st.integers(0, 80)))
    def resize(self, total: tuple[int, int]) -> None:
        self.total = dict(zip(RESOURCES, total, strict=True))
        self.account.set_cluster(self.total)

    @rule(name=st.sampled_from(NAMES))
    def look(self, name: str) -> None:
        if name in self.quotas:
            self.account.standing(f"{NAMESPACE}/{name}")

    @rule()
    def refresh(self) -> None:
        self.account.tree.refresh()
        assert not any(
            node.stale and node.children for root in self.account.tree.roots.values() for node in _all(root)
        )

    def anew(self) -> Account:
        """The same, in another order."""
        other = Account()
        for one, bound in self.pods.values():
            other.count(one, bound=bound)
        other.change(reversed(list(self.quotas.values())))
        for policy, (of, amounts) in self.floors.items():
            other.hold(policy, ("pods", of), amounts)
        other.set_cluster(self.total)
        return other

    @invariant()
    def as_one_made_anew(self) -> None:
        other = self.anew()
        for name in self.quotas:
            key = f"{NAMESPACE}/{name}"
            mine, its = self.account.standing(key), other.standing(key)
            assert _stated(mine) == _stated(its)
            assert self.account.tree.nodes[key].path()[0].quota == other.tree.nodes[key].path()[0].quota

    @invariant()
    def as_the_model_says(self) -> None:
        for resource in RESOURCES:
            for name, modelled in self._model(resource).items():
                if name in model.SYSTEM:
                    continue
                stood = self.account.standing(f"{NAMESPACE}/{name}").get(resource)
                if stood is None:
                    assert not modelled.taken()
                    assert not modelled.request()
                    continue
                assert stood.runtime == modelled.runtime, (name, resource)
                assert (stood.used, stood.held) == (modelled.used(), modelled.floors())
                assert stood.request == modelled.request()
                if modelled.most is not None:
                    assert stood.guaranteed == modelled.guaranteed
                    assert stood.runtime is not None
                    assert stood.runtime <= modelled.most
                    assert stood.runtime >= min(modelled.want(), modelled.guaranteed)

    @invariant()
    def children_stay_within_their_parent(self) -> None:
        for node in self.account.tree.nodes.values():
            for resource in RESOURCES if node.children else ():
                runtime = self.account.tree.runtime(node, resource)
                if runtime is not None:
                    parts = [each for each in node.children if each.shares(resource)]
                    shares = [self.account.tree.runtime(each, resource) or 0 for each in parts]
                    assert sum(shares) <= runtime

    def _model(self, resource: str) -> dict[str, model.Quota]:
        beside = {name: ElasticQuota("", name) for name in model.SYSTEM}
        known = {name: model.of(one, resource) for name, one in {**self.quotas, **beside}.items()}
        for one, bound in self.pods.values():
            label = origin_of(one)[1]
            known[label if label in known else keys.DEFAULT_QUOTA].pods.append(
                (one.requests[resource], bound)
            )
        for of, amounts in self.floors.values():
            known[of if of in known else keys.DEFAULT_QUOTA].held += amounts[resource]
        places = model.parents(self.quotas) | dict.fromkeys(model.SYSTEM, ("", ""))
        tops: dict[str, list[model.Quota]] = {"": []}
        for name, (tree, parent) in places.items():
            (known[parent].children if parent else tops.setdefault(tree, [])).append(known[name])
        totals = {"": self.total.get(resource, 0)}
        for name in sorted(self.quotas):
            one, tree = self.quotas[name], places[name][0]
            if one.is_root and one.total is not None and tree and tree not in totals:
                totals[tree] = one.total.get(resource, 0)
                totals[""] -= 0 if one.beside else totals[tree]
        for tree, top in tops.items():
            model.distribute(totals.get(tree, 0), top, 0)
        return known


def _stated(standings: dict[str, Standing]) -> dict[str, Standing]:
    """Without resources of which there is nothing any more."""
    return {name: each for name, each in standings.items() if each != Standing(0, 0, 0, 0, None, 0, None)}


def _all(node: object) -> Iterable[object]:
    yield node
    for child in node.children:  # type: ignore[attr-defined]
        yield from _all(child)


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=60, stateful_step_count=25)
