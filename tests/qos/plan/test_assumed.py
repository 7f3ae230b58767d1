"""The worst case of an unknown node: what is beside a container, and what each level weighs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.plan import assumed
from qos.plan.assumed import Machine
from qos.plan.layout import Driver
from qos.plan.node import V1, V2
from qos.pods.containers import BEST_EFFORT, BURSTABLE, GUARANTEED, Container, NodePod, request

GI = 2**30
NODE = Machine(8000, 32 * GI, 7800, 30 * GI, frozenset({"cpu.weight", "memory.min"}))


def pod(*containers: Container, qos: str = BURSTABLE) -> NodePod:
    return NodePod("", "default", "web", containers, qos)


def web(cpu: int, memory: int = GI, **more: int) -> Container:
    return Container("web", cpu, memory_request=memory, **more)


def test_levels_of_each_class() -> None:
    for qos, names in (
        (GUARANTEED, ["kubepods.slice", "kubepods-podUID.slice"]),
        (BURSTABLE, ["kubepods.slice", "kubepods-burstable.slice", "kubepods-burstable-podUID.slice"]),
        (BEST_EFFORT, ["kubepods.slice", "kubepods-besteffort.slice", "kubepods-besteffort-podUID.slice"]),
    ):
        facts = assumed.kubernetes_facts(pod(Container("web"), qos=qos), "web", NODE)
        found = [level.path.rsplit("/", 1)[-1] for level in facts.levels]
        assert found == [*names, "cri-containerd-ID.scope"]
        assert [level.owned for level in facts.levels][-2:] == [True, True]
        assert not any(level.owned for level in facts.levels[:-2])
        assert all(level.assumed for level in facts.levels)


def test_limits_are_read_as_kubelet_writes_them() -> None:
    one = Container("web", 200, 200, 64, 64)
    facts = assumed.kubernetes_facts(pod(one, qos=GUARANTEED), "web", NODE)
    assert [(level.cpu_quota, level.memory_max) for level in facts.levels] == [
        (None, 30 * GI),
        (200, 64),
        (200, 64),
    ]
    free = assumed.kubernetes_facts(pod(one, Container("log")), "web", NODE)
    assert [(level.cpu_quota, level.memory_max) for level in free.levels[-2:]] == [(None, None), (200, 64)]


def limits_of(one: NodePod) -> tuple[int | None, int | None]:
    """What kubelet writes on the pod's cgroup: (millicores, bytes), as ResourceConfigForPod computes it."""
    level = assumed.kubernetes_facts(one, one.containers[-1].name, NODE).levels[-2]
    return level.cpu_quota, level.memory_max


def test_a_pod_may_use_what_its_largest_init_container_may() -> None:
    app = Container("app", 100, 500, 64, 64)
    init = Container("init", 100, 2000, 64, 32, init=True)
    proxy = Container("proxy", 100, 300, 64, 16, init=True, sidecar=True)
    assert limits_of(pod(app)) == (500, 64)
    assert limits_of(pod(init, app)) == (2000, 64)
    assert limits_of(pod(proxy, init, app)) == (2300, 80)
    assert limits_of(pod(init, proxy, app)) == (2000, 80)


def test_an_init_container_without_a_limit_leaves_its_pod_without_one() -> None:
    app = Container("app", 100, 500, 64, 64)
    assert limits_of(pod(Container("init", 100, 200, 64, init=True), app)) == (500, None)
    assert limits_of(pod(Container("init", 100, 0, 64, 64, init=True), app)) == (None, 64)
    whole = replace(pod(Container("init", init=True), app), memory_request=64, memory_limit=128)
    assert limits_of(whole) == (None, 128)


def test_what_its_sandbox_needs_comes_on_top() -> None:
    """spec.overhead, which the API server fills from the pod's RuntimeClass."""
    app = Container("app", 100, 500, 64, 64)
    one = replace(pod(app), cpu_overhead=250, memory_overhead=1000)
    assert request(one) == (350, 1064)
    assert limits_of(one) == (750, 1064)
    assert limits_of(replace(one, containers=(Container("app", 100),))) == (None, None)
    stated = replace(one, cpu_request=100, cpu_limit=1000, memory_request=64, memory_limit=100)
    assert (request(stated), limits_of(stated)) == ((350, 1064), (1250, 1100))


def test_200m_weighs_8_on_the_pod_and_29_on_the_container_or_204_on_both() -> None:
    one = pod(web(200), qos=GUARANTEED)
    assert [level.weight for level in assumed.kubernetes_facts(one, "web", NODE).levels[-2:]] == [8, 29]
    old = replace(NODE, cgroup=V1, driver=Driver.CGROUPFS)
    assert [level.weight for level in assumed.kubernetes_facts(one, "web", old).levels[-2:]] == [204, 204]


def test_the_request_of_a_pod_counts_init_containers_as_kube_scheduler_does() -> None:
    init, proxy = Container("i", 900, init=True), Container("p", 100, init=True, sidecar=True)
    assert request(pod(web(500), init))[0] == 900
    assert request(pod(web(500), proxy))[0] == 600
    assert request(pod(proxy, init, web(500)))[0] == 1000


def test_pod_level_resources_count_where_they_are_given() -> None:
    one = replace(pod(web(100)), cpu_request=900, memory_request=GI, cpu_limit=1000, memory_limit=2 * GI)
    assert request(one) == (900, GI)
    level = assumed.kubernetes_facts(one, "web", NODE).levels[-2]
    assert (level.weight, level.cpu_quota, level.memory_max) == (NODE.kubelet_weight(900), 1000, 2 * GI)


def test_a_pod_that_kubelet_would_refuse() -> None:
    with pytest.raises(assumed.DoesNotFitError, match="pod default/web requests 9 cpu and 1Gi memory"):
        assumed.kubernetes_facts(pod(web(9000)), "web", NODE)
    with pytest.raises(KeyError):
        assumed.kubernetes_facts(pod(web(1)), "no-such", NODE)


@given(
    requests=st.lists(st.integers(0, 4000), min_size=1, max_size=109),
    qos=st.sampled_from([GUARANTEED, BURSTABLE]),
    cgroup=st.sampled_from([V1, V2]),
)
def test_no_pods_that_fit_weigh_more_than_assumed(requests: list[int], qos: str, cgroup: str) -> None:
    rest = sum(requests)
    node = replace(NODE, cgroup=cgroup, cpus=rest + 500, allocatable_cpus=rest + 500)
    assumed_to_be = assumed.kubernetes_facts(pod(web(500), qos=qos), "web", node).levels[-2].rivals[0].weight
    assert sum(node.kubelet_weight(each) for each in requests) <= assumed_to_be


def test_the_assumption_is_not_far_from_a_full_node() -> None:
    node = replace(NODE, pods=2)
    one = assumed.kubernetes_facts(pod(web(500), qos=GUARANTEED), "web", node)
    assert one.levels[-2].rivals[0].weight - node.kubelet_weight(7300) in (0, 1)


def test_a_container_of_podman_meets_its_like_and_the_host() -> None:
    facts = assumed.standalone_facts(NODE, ("/machine.slice", "/machine.slice/libpod-ID.scope"), 3)
    parent, own = facts.levels
    assert (len(parent.rivals), parent.owned) == (assumed.HOST_SLICES, False)
    assert (len(own.rivals), own.owned, own.weight) == (3, True, 100)
    (only,) = assumed.standalone_facts(replace(NODE, cgroup=V1), ("/ID",), 3).levels
    assert (len(only.rivals), only.weight) == (3 + assumed.HOST_SLICES, 1024)


def test_the_share_pool_is_all_cpus() -> None:
    assert assumed.facts(NODE, ()).shared_cpus == "0-7"
    assert assumed.facts(replace(NODE, cpus=900), ()).shared_cpus == "0"
