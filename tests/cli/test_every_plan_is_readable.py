"""Whatever is planned, the hook reads: every pod, class, floor and node make a file that it accepts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cli.plan_node import files_of
from kernel import cache
from qos.classes import CLASSES, promises_of
from qos.plan import assumed
from qos.plan.assumed import Machine
from qos.plan.layout import Driver
from qos.plan.node import V1, V2
from qos.plan.planning import plan
from qos.pods.containers import BEST_EFFORT, BURSTABLE, GUARANTEED, Container, NodePod
from qos.promises import IoLimit, Overrides

CPUS = st.integers(0, 3000)
MEMORY = st.integers(0, 2**33)
UID = "3c0f1d2e-aaaa-4bbb-8ccc-0123456789ab"


@st.composite
def pods(draw: st.DrawFn) -> NodePod:
    containers = []
    for number in range(draw(st.integers(1, 4))):
        cpu, memory = draw(CPUS), draw(MEMORY)
        init = number == 0 and draw(st.booleans())
        containers.append(
            Container(
                f"c{number}",
                cpu,
                draw(st.sampled_from([0, cpu, cpu + 500])),
                memory,
                draw(st.sampled_from([0, memory, memory + 12345])),
                init=init,
                sidecar=init and draw(st.booleans()),
            )
        )
    always = Container("always", 1)
    return NodePod(UID, "shop", "web", (*containers, always), draw(st.sampled_from([GUARANTEED, BURSTABLE])))


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    cgroup = draw(st.sampled_from([V1, V2]))
    kernel = draw(st.sampled_from([(4, 5), (4, 19), (5, 4), (5, 15), (6, 12)]))
    cpus, memory = draw(st.integers(13_000, 256_000)), draw(st.integers(2**36, 2**40))
    return Machine(
        cpus, memory, cpus, memory, files_of(cgroup, kernel), cgroup, driver=draw(st.sampled_from(Driver))
    )


OVERRIDES = st.fixed_dictionaries(
    {},
    optional={
        "cpu_weight": st.integers(1, 10_000),
        "memory_min_percent": st.integers(0, 100),
        "memory_request_low_percent": st.integers(0, 100),
        "memory_high_percent": st.integers(0, 100),
        "memory_oom_group": st.booleans(),
        "oom_score_adj": st.integers(-1000, 1000),
        "io_weight": st.integers(1, 10_000),
        "io_limit": st.builds(IoLimit, st.integers(0, 2**40), st.integers(0, 2**40), st.integers(0, 2**31)),
        "pids_max": st.integers(1, 2**22),
    },
)


@given(
    pod=pods(),
    machine=machines(),
    class_name=st.sampled_from(sorted(CLASSES)),
    overrides=OVERRIDES,
    cpu=st.integers(0, 20_000),
    memory=st.integers(0, 2**38),
)
def test_the_hook_reads_every_plan(
    pod: NodePod, machine: Machine, class_name: str, overrides: Overrides, cpu: int, memory: int
) -> None:
    promises = promises_of(class_name, overrides)
    floor = {"cpu": cpu, "memory": memory} if CLASSES[class_name].has_floor else None
    entries = {}
    for container in pod.containers:
        facts = assumed.kubernetes_facts(pod, container.name, machine)
        made = plan(pod, container.name, promises, floor, facts)
        assert {one.file for one in made.settings} <= machine.files
        entries[container.name] = [setting.entry for setting in made.settings]
    text = cache.text(UID, 0, entries)
    assert cache.parse(text.encode(), UID) == (0, "", entries)


def test_best_effort_pods_too() -> None:
    pod = NodePod(UID, "shop", "web", (Container("c"),), BEST_EFFORT)
    for cgroup in (V1, V2):
        machine = Machine(8000, 2**35, 8000, 2**35, files_of(cgroup, (6, 12)), cgroup)
        made = plan(pod, "c", promises_of("BE"), None, assumed.kubernetes_facts(pod, "c", machine))
        assert cache.text(UID, 0, {"c": [setting.entry for setting in made.settings]})
