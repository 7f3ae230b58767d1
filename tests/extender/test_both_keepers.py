"""Both keepers in one cluster: each slot is held once, by whom its policy names, and nothing counts twice."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from datetime import UTC, datetime

import orjson
import pytest

from adapters.api import NODES, PODS, POLICIES
from extender.config import Keeper, Quotas
from extender.server import VerbsApp
from qos import keys
from tests.extender.placeholder_cluster import Scheduler, cpus_of, nodes_of, ours, refuse, stand, wanted_node
from tests.extender.test_gangs import gated
from tests.waiting import running as beside


class AskingScheduler(Scheduler):
    """The same, and asks the verbs about every pod, placeholders too, as kube-scheduler does."""

    def __init__(self, api, cpus: int) -> None:
        super().__init__(api, cpus)
        self.verbs: VerbsApp | None = None

    async def once(self) -> None:
        pods = self.api.objects(PODS)
        used = Counter()
        for one in pods:
            if node := one["spec"].get("nodeName") or one.get("status", {}).get("nominatedNodeName"):
                used[node] += cpus_of(one)
        waiting = [p for p in pods if not p["spec"].get("nodeName") and not p["spec"].get("schedulingGates")]
        for one in sorted(waiting, key=lambda p: -p["spec"].get("priority", 0)):
            nominated = one.get("status", {}).get("nominatedNodeName")
            names = sorted(n["metadata"]["name"] for n in self.api.objects(NODES))
            nodes = [nominated] if nominated else wanted_node(one) or names
            fit = [n for n in nodes if used[n] + (0 if n == nominated else cpus_of(one)) <= self.cpus]
            if fit and await self.bound(one, fit):
                return
            refuse(self.api, one)

    async def bound(self, pod, names: list[str]) -> bool:
        reply = await self.verbs.ask("/filter", orjson.dumps({"Pod": pod, "NodeNames": names}))
        chosen = orjson.loads(reply.body).get("NodeNames")
        if not chosen:
            return False
        meta = pod["metadata"]
        named = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"]}
        reply = await self.verbs.ask("/bind", orjson.dumps(named | {"Node": chosen[0]}))
        return orjson.loads(reply.body)["Error"] == ""


@pytest.fixture
def keeping(api, running):
    """keeping(cpus): a cluster whose scheduler asks our program, which runs both keepers."""

    @contextlib.asynccontextmanager
    async def run(cpus=4, **options):
        scheduler = AskingScheduler(api, cpus)
        settings = {"both_keepers": True, "warmup_seconds": 0} | options
        async with running(api, **settings) as program:
            program.guarding.installed = 0.0
            scheduler.verbs = VerbsApp(
                program.ledger,
                program.binder,
                program.readiness,
                program.metrics,
                program._clock,
                program._apart,
            )
            async with beside(scheduler.run()):
                yield program

    return run


def guarded(api, name: str) -> tuple[str, str, str]:
    status = api.get_object(POLICIES, "default", name).get("status", {})
    found = (one for one in status.get("conditions", ()) if one["type"] == keys.GUARDED)
    return next(((one["status"], one["reason"], one["message"]) for one in found), ("", "", ""))


def bound(api, app: str) -> int:
    pods = [one for one in api.objects(PODS) if one["metadata"].get("labels", {}).get("app") == app]
    return sum(bool(one["spec"].get("nodeName")) for one in pods)


async def test_each_policy_is_kept_by_the_keeper_it_names_and_a_flood_gets_the_rest(
    api, keeping, make_node, make_pod, make_policy, eventually
):
    for name in ("n1", "n2"):
        api.put(NODES, make_node(name))
    api.put(POLICIES, make_policy("one", count=2, cpu="1", keeper="Placeholders"))
    api.put(POLICIES, make_policy("other", count=2, cpu="1"))
    async with keeping() as program:
        await eventually(lambda: sum(stand(api).values()) == 2)
        for number in range(12):
            api.put(PODS, make_pod(f"batch-{number}", app="batch"))
        await eventually(lambda: bound(api, "batch") == 4)
        assert {key: (one.held, one.filled) for key, one in program.ledger.report().items()} == {
            "default/one": (2, 0),
            "default/other": (2, 0),
        }
        for number in range(2):
            api.put(PODS, make_pod(f"one-{number}", app="one"))
            api.put(PODS, make_pod(f"other-{number}", app="other"))
        await eventually(lambda: (bound(api, "one"), bound(api, "other")) == (2, 2))
        await eventually(lambda: not ours(api))
        assert bound(api, "batch") == 4
        await eventually(lambda: guarded(api, "one")[1:] == ("Guarded", PLACED))
        await eventually(lambda: guarded(api, "other")[1:] == ("Guarded", ASKED))


PLACED, ASKED = "a placeholder is bound where each hold lies", "pods are bound through the extender"


async def test_a_gated_owner_is_handed_over_to_and_bound_by_the_verbs(
    api, keeping, make_node, make_pod, make_policy, eventually
):
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy("one", count=2, cpu="2", keeper="Placeholders"))
    async with keeping() as program:
        await eventually(lambda: stand(api) == {"n1": 2})
        owner = make_pod("one-1", cpu="2", app="one")
        owner["spec"]["schedulingGates"] = [{"name": keys.HAND_OVER_GATE}]
        api.put(PODS, owner)
        await eventually(lambda: nodes_of(api, "one") == {"one-1": "n1"})
        await eventually(lambda: stand(api) == {"n1": 1})
        await eventually(lambda: program.ledger.report()["default/one"].filled == 1)
        pod = api.get_object(PODS, "default", "one-1")
        assert pod["metadata"]["annotations"][keys.BOUND_BY_ANNOTATION] == "test"


async def test_no_owner_waits_for_a_placeholders_place_and_for_its_gang(
    api, keeping, make_node, make_pod, make_policy, eventually
):
    """Of two gates each would wait for the other."""
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy("one", count=1, cpu="2", keeper="Placeholders"))
    async with keeping(quotas=Quotas(enabled=True)):
        await eventually(lambda: stand(api) == {"n1": 1})
        owner = gated(make_pod("one-1", cpu="2", app="one"), "gang", 1)
        owner["spec"]["schedulingGates"].append({"name": keys.HAND_OVER_GATE})
        api.put(PODS, owner)
        pod = lambda: api.get_object(PODS, "default", "one-1")  # noqa: E731
        await eventually(lambda: not pod()["spec"].get("schedulingGates"))


@pytest.mark.parametrize("first", ["Extender", "Placeholders"])
async def test_a_policy_whose_keeper_changes_has_its_floor_throughout(
    api, keeping, make_node, make_pod, make_policy, eventually, first
):
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy("one", count=2, cpu="1", keeper=first))
    placeholders = {"Extender": 0, "Placeholders": 2}
    (then,) = placeholders.keys() - {first}
    async with keeping() as program:
        await eventually(lambda: sum(stand(api).values()) == placeholders[first])
        for number in range(6):
            api.put(PODS, make_pod(f"batch-{number}", app="batch"))
        await eventually(lambda: bound(api, "batch") == 2)
        changed = make_policy("one", count=2, cpu="1", keeper=then)
        changed["metadata"]["generation"] = 2
        api.put(POLICIES, changed)
        await eventually(lambda: sum(stand(api).values()) == placeholders[then])
        assert bound(api, "batch") == 2
        assert program.ledger.report()["default/one"].held == 2


async def test_placeholders_stay_while_pods_are_bound_that_nobody_asked_about(
    api, keeping, make_node, make_pod, make_policy, eventually
):
    """kube-scheduler does not call the extender: holds of the new keeper would be nobody's."""
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy("one", count=1, cpu="1", keeper="Placeholders"))
    async with keeping() as program:
        await eventually(lambda: stand(api) == {"n1": 1})
        past = make_pod("past", cpu="1", node="n1")
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now()}
        past["status"]["conditions"] = [scheduled]
        api.put(PODS, past)
        await eventually(lambda: program.keeper._cluster.away())
        changed = make_policy("one", count=1, cpu="1", keeper="Extender")
        changed["metadata"]["generation"] = 2
        api.put(POLICIES, changed)
        await eventually(lambda: guarded(api, "one")[:2] == ("False", "ExtenderAway"))
        assert stand(api) == {"n1": 1}


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize(("usual", "named"), [("Extender", "Placeholders"), ("Placeholders", "Extender")])
async def test_a_keeper_that_does_not_run_is_said_and_the_other_one_keeps(
    api, running, make_node, make_policy, eventually, usual, named
):
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy("one", count=1, cpu="1", keeper=named))
    async with running(api, keeper=Keeper(usual)) as program:
        await eventually(lambda: guarded(api, "one")[:2] == ("False", "KeeperNotInstalled"))
        assert f"spec.keeper is {named}, which this installation does not run" in guarded(api, "one")[2]
        assert program.ledger.report()["default/one"].held == 1
        await eventually(lambda: len(ours(api)) == (usual == "Placeholders"))


NODE_COUNT, CPUS = 3, 4


@pytest.mark.parametrize("seed", range(6))
async def test_nothing_is_counted_twice(api, keeping, make_node, make_pod, make_policy, eventually, seed):
    """Slots and pods of one CPU each, so nothing is lost to fragments: all that is asked for is held, and
    batch pods get exactly the rest, whoever keeps, whatever came and went before.
    """
    chance = random.Random(seed)
    for number in range(NODE_COUNT):
        api.put(NODES, make_node(f"n{number}", cpu=str(CPUS)))
    wanted, keepers, owners, generation = {}, {}, Counter(), 1
    for name in ("one", "two", "three"):
        wanted[name], keepers[name] = chance.randint(0, 3), chance.choice(["Extender", "Placeholders"])
        api.put(POLICIES, make_policy(name, count=wanted[name], cpu="1", keeper=keepers[name]))
    async with keeping(CPUS) as program:
        for number in range(NODE_COUNT * CPUS):
            api.put(PODS, make_pod(f"batch-{number}", app="batch"))
        for step in range(5):
            name = chance.choice([*wanted])
            match chance.randrange(4):
                case 0:
                    generation += 1
                    keepers[name] = chance.choice(["Extender", "Placeholders"])
                    changed = make_policy(name, count=wanted[name], cpu="1", keeper=keepers[name])
                    changed["metadata"]["generation"] = generation
                    api.put(POLICIES, changed)
                case 1 if owners[name]:
                    owners[name] -= 1
                    gone = next(p for p in api.objects(PODS) if p["metadata"]["labels"].get("app") == name)
                    api.remove(PODS, "default", gone["metadata"]["name"])
                case _ if owners[name] < wanted[name]:
                    owners[name] += 1
                    owner = make_pod(f"{name}-{step}", app=name)
                    if keepers[name] == "Placeholders" and chance.random() < 0.5:
                        owner["spec"]["schedulingGates"] = [{"name": keys.HAND_OVER_GATE}]
                    api.put(PODS, owner)

            def account(name: str) -> tuple[int, int, int]:
                report = program.ledger.report()[f"default/{name}"]
                return report.filled, report.held, sum(one.count for one in report.unplaced)

            def right() -> bool:
                batch = NODE_COUNT * CPUS - sum(wanted.values())
                kept = sum(wanted[n] - owners[n] for n in wanted if keepers[n] == "Placeholders")
                return (
                    all(account(n) == (owners[n], wanted[n] - owners[n], 0) for n in wanted)
                    and all(bound(api, n) == owners[n] for n in wanted)
                    and bound(api, "batch") == batch
                    and sum(stand(api).values()) == kept
                )

            await eventually(right)
            assert all(used <= CPUS for used in physical(api, program).values())


def physical(api, program) -> Counter[str]:
    """What pods and placeholders take of each node, and beside them the holds that have none."""
    used = Counter(one["spec"]["nodeName"] for one in api.objects(PODS) if one["spec"].get("nodeName"))
    for key, report in program.ledger.report().items():
        if program.catalog.keeper(key) is Keeper.EXTENDER:
            used += Counter(dict(report.holds))
    return used
