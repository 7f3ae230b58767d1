"""All containers of a pod, planned one by one and applied together, against the kernel's rules."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.kernel_rules import Group, cpu_time, protection
from qos.classes import CLASSES
from qos.cluster.objects import Resources
from qos.plan import layout
from qos.plan.controller import all_files
from qos.plan.node import V1, V2, Level, NodeFacts, Rival
from qos.plan.planning import parts, plan
from qos.plan.settings import Plan
from qos.pods.containers import Container, NodePod, at_once

MI = 2**20
WEIGHT = {V1: "cpu.shares", V2: "cpu.weight"}
CPU = st.sampled_from([0, 1, 37, 100, 250, 333, 1000, 2000])
MEMORY = st.sampled_from([0, 64 * MI, 100_000_000, 1024 * MI])
CONTAINERS = st.builds(
    Container,
    st.just(""),
    cpu_request=CPU,
    memory_request=MEMORY,
    init=st.sampled_from([False, False, True]),
    sidecar=st.booleans(),
).map(lambda one: replace(one, sidecar=one.sidecar and one.init))


class Case(NamedTuple):
    """A pod, its floor, and a node's facts for each of its containers."""

    pod: NodePod
    floor: Resources
    facts: dict[str, NodeFacts]

    @property
    def levels(self) -> tuple[Level, ...]:
        """What all of its containers are below, the pod's own cgroup last."""
        return self.facts[self.pod.containers[0].name].levels[:-1]

    def plans(self) -> dict[str, Plan]:
        """Of every container."""
        promises = CLASSES["LS"].promises
        return {name: plan(self.pod, name, promises, self.floor, node) for name, node in self.facts.items()}


def above(cgroup):
    """kubepods and the like, and the pod: with siblings, quotas and limits."""
    low = 1 if cgroup == V2 else 2
    rival = st.builds(Rival, st.integers(low, 2000), st.booleans(), memory_min=MEMORY, memory_low=MEMORY)
    return st.builds(
        Level,
        st.just(""),
        st.integers(low, 2000),
        st.lists(rival, max_size=2).map(tuple),
        cpu_quota=st.sampled_from([None, None, None, 1500]),
        memory_max=st.sampled_from([None, None, None, 512 * MI, 3000 * MI]),
    )


@st.composite
def cases(draw):
    cgroup = draw(st.sampled_from([V1, V2]))
    containers = draw(st.lists(CONTAINERS, min_size=1, max_size=5))
    containers.sort(key=lambda one: not one.init)
    containers[-1] = replace(containers[-1], init=False, sidecar=False)
    named = tuple(replace(one, name=f"c{number}") for number, one in enumerate(containers))
    pod = NodePod("uid", "shop", "web", named, "Burstable")
    shared = draw(st.lists(above(cgroup), min_size=1, max_size=3))
    levels = tuple(
        replace(level, path=f"/{index}", owned=index == len(shared) - 1) for index, level in enumerate(shared)
    )
    memory, cpus = draw(st.sampled_from([2048, 65_536])) * MI, draw(st.sampled_from([1, 4, 64])) * 1000
    page = draw(st.sampled_from([4096, 65_536]))
    return Case(
        pod,
        draw(st.fixed_dictionaries({"cpu": st.integers(0, 5000), "memory": MEMORY})),
        {
            one.name: NodeFacts(
                cgroup,
                cpus,
                memory,
                frozenset(name for name, file in all_files().items() if cgroup in file.versions),
                (*levels, container_level(cgroup, one)),
                page=page,
            )
            for one in named
        },
    )


def container_level(cgroup, one):
    shares = layout.shares(one.cpu_request)
    weight = layout.runtime_weight(shares) if cgroup == V2 else shares
    return Level(f"/pod/{one.name}", weight, owned=True)


def group(name, cgroup, weight, **more):
    return Group(name, **({"weight": weight} if cgroup == V2 else {"shares": weight}), **more)


def written(found, number, file):
    return next((int(one.value) for one in found.settings if (one.level, one.file) == (number, file)), None)


def tree(case, plans, running):
    """The cgroups with all plans applied, in the order in which the containers start; those that run now."""
    root = parent = Group("/")
    cgroup = case.facts[running[0].name].cgroup
    page, usage = case.facts[running[0].name].page, sum(case.floor.values()) * 2 + MI
    for index, level in enumerate(case.levels):
        number = len(case.levels) - index
        for place, rival in enumerate(level.rivals):
            name, claim = f"{index}.{place}", -(-rival.memory_low // page) * page
            parent.children.append(
                group(name, cgroup, rival.weight, idle=rival.idle, memory_min=claim, memory_usage=claim * 2)
            )
        weight, claims = level.weight, [level.memory_low]
        for one in case.pod.containers:
            weight = written(plans[one.name], number, WEIGHT[cgroup]) or weight
            claims.append(written(plans[one.name], number, "memory.low") or 0)
        one = group(f"/{index}", cgroup, weight, quota=level.cpu_quota)
        one.memory_min, one.memory_max = claims[-1] if level.owned else max(claims), level.memory_max
        parent.children.append(one)
        parent = one
    for container in running:
        found, node = plans[container.name], case.facts[container.name]
        weight = written(found, 0, WEIGHT[cgroup]) or node.levels[-1].weight
        claim = written(found, 0, "memory.low") or 0
        parent.children.append(group(container.name, cgroup, weight, memory_min=claim, memory_usage=usage))
    return root


@given(cases(), st.booleans())
def test_every_container_gets_its_part_or_is_said_to_get_less(case, recursive):
    """With all that runs at the same time: all containers, and each init container beside its sidecars."""
    plans, of_each = case.plans(), parts(case.pod, case.floor)
    node = next(iter(case.facts.values()))
    for running in at_once(case.pod.containers):
        root = tree(case, plans, running)
        received = cpu_time(root, node.cpus)
        protected = protection(root, recursive=recursive, memory=node.memory)
        for one in running:
            missing = {short.resource: short.missing for short in plans[one.name].shortfalls}
            assert received[one.name] >= of_each[one.name]["cpu"] - missing.get("cpu", 0)
            kept = protected[one.name] if node.cgroup == V2 else 0
            assert kept >= of_each[one.name]["memory"] - missing.get("memory", 0)


@given(cases())
def test_the_pod_is_never_promised_more_than_its_floor(case):
    of_each = parts(case.pod, case.floor)
    for running in at_once(case.pod.containers):
        for resource, amount in case.floor.items():
            assert sum(of_each[one.name][resource] for one in running) == amount


@given(cases())
def test_above_the_container_all_of_a_pod_write_the_same(case):
    plans = case.plans()
    for number in range(1, len(case.levels) + 1):
        of_each = {tuple(one for one in found.settings if one.level == number) for found in plans.values()}
        assert len(of_each) == 1


@given(cases())
def test_a_pod_is_not_short_where_there_is_room(case):
    """Whole numbers as weights, siblings without a floor, limits of just the part: no reason for one."""
    of_each = parts(case.pod, case.floor)
    free = tuple(replace(level, rivals=(), cpu_quota=None, memory_max=None) for level in case.levels)
    free = (*free[:-1], replace(free[-1], rivals=(Rival(100),)))
    facts = {
        name: replace(
            node,
            levels=(*free, replace(node.levels[-1], memory_max=of_each[name]["memory"])),
            cpus=case.floor["cpu"] * 5 // 4 + 20,
            memory=2**40,
        )
        for name, node in case.facts.items()
    }
    for found in case._replace(facts=facts).plans().values():
        assert [one for one in found.shortfalls if one.kept] == []


def facts_of(*levels, cpus=8000, memory=32 * 1024 * MI):
    return NodeFacts(V2, cpus, memory, frozenset(all_files()), (*levels, Level("/pod/c", 1, owned=True)))


@pytest.mark.parametrize(
    "pod_level",
    [
        Level("/pod", 1, owned=True, memory_max=1024 * MI),
        Level("/pod", 1, (Rival(1, memory_min=31 * 1024 * MI, memory_low=31 * 1024 * MI),), owned=True),
    ],
)
def test_containers_share_what_memory_reaches_their_pod(pod_level):
    pod = NodePod("uid", "shop", "web", (Container("a"), Container("b")))
    for name in ("a", "b"):
        found = plan(pod, name, CLASSES["LS"].promises, {"memory": 2048 * MI}, facts_of(pod_level))
        (short,) = found.shortfalls
        assert (short.resource, short.level, short.kept) == ("memory", 1, 512 * MI)


def test_a_large_and_a_small_container_have_one_solution():
    """The small one's plan does not count on the weight that the runtime gave the large one."""
    pod = NodePod(
        "uid", "shop", "web", (Container("app", cpu_request=2000), Container("proxy", cpu_request=100))
    )
    facts = facts_of(Level("/pod", 83, (Rival(300),), owned=True))
    plans = [plan(pod, name, CLASSES["LS"].promises, {"cpu": 2100}, facts) for name in ("app", "proxy")]
    assert [written(found, 0, "cpu.weight") for found in plans] == [340, 17]
    assert [found.shortfalls for found in plans] == [(), ()]


def test_an_init_container_gets_what_earlier_sidecars_leave():
    proxy = Container("proxy", cpu_request=500, init=True, sidecar=True)
    pod = NodePod(
        "uid", "shop", "web", (proxy, Container("migrate", init=True), Container("app", cpu_request=1500))
    )
    assert parts(pod, {"cpu": 2000}) == {
        "proxy": {"cpu": 500},
        "migrate": {"cpu": 1500},
        "app": {"cpu": 1500},
    }


def test_who_runs_beside_whom():
    first, proxy = Container("first", init=True), Container("proxy", init=True, sidecar=True)
    second, app = Container("second", init=True), Container("app")
    one = NodePod("uid", "shop", "web", (first, proxy, second, app))
    assert at_once(one.containers) == ((proxy, app), (first,), (proxy, second))
