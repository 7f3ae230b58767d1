"""containerd with the hook by base runtime spec and by NRI: a pod's floor before the first instruction."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.runtimes import containerd as rig
from lab.runtimes.cgroups import Scratch
from lab.runtimes.containerd import Containerd, Handler, Options
from lab.runtimes.cri import Container, Pod
from lab.runtimes.hook_injector import hook_injector
from lab.runtimes.installed_hook import InstalledHook
from lab.runtimes.programs import RuntimesError
from tests.waiting import until

SOFT = "/sys/fs/cgroup/memory/memory.soft_limit_in_bytes"
SHARES = "/sys/fs/cgroup/cpu/cpu.shares"
UNLIMITED = "9223372036854771712"
FLOOR = ((0, "set", "cpu.shares", "777"), (0, "set", "memory.soft_limit_in_bytes", "33554432"))
OTHER = "0a1b2c3d-0000-4000-8000-ffffffffffff"
FILES = (SHARES, SOFT)
READS = Container("app", ("cat", *FILES), {"cpu_shares": 204})
STAYS = Container("app", ("sh", "-c", f"cat {SHARES} {SOFT}; exec sleep 1000"), {"cpu_shares": 204})
LYING = "j10ce-lied-to"
PATIENCE = 30
"""Seconds for NRI's plugin: containerd goes on without one that takes longer."""

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def containerd(programs: Path, installed: InstalledHook) -> Iterator[Containerd]:
    """One containerd; the runtime handler j10ce has the hook in its base spec, the default one has not."""
    base = installed.base_spec
    every = ("*",)  # what nobody should do: a pod's annotations reach the hook as the runtime's own do
    handlers = {"j10ce": Handler(base, ("j10ce.io/*",)), LYING: Handler(base, every)}
    with rig.containerd(programs, Options(handlers, patience=PATIENCE)) as running:
        yield running


@dataclass(frozen=True)
class Node:
    """A containerd whose containers get the hook, by one of the two ways."""

    containerd: Containerd
    scratch: Scratch
    handler: str

    def pod(self, annotations: Mapping[str, str] | None = None, namespace: str = "default") -> Pod:
        """A new pod with the cgroup that kubelet makes for it."""
        uid = f"0a1b2c3d-0000-4000-8000-{next(_numbers):012x}"
        parent = self.scratch.make("kubepods", "burstable", f"pod{uid}")
        return Pod(f"pod-{uid[-4:]}", uid, parent.name, namespace, annotations or {})

    def run(self, pod: Pod) -> list[str]:
        """Run a container of a new sandbox to its end; answer what it read."""
        cri = self.containerd.cri
        identity = cri.create(cri.run_pod(pod, self.handler), pod, READS)
        cri.start(identity).succeeded()
        assert cri.finish(identity) == 0
        return cri.printed(pod, READS, len(FILES))  # the end may be told before the last line is in the log


@pytest.fixture(params=["base-spec", "nri"])
def node(
    request: pytest.FixtureRequest, containerd: Containerd, hook: InstalledHook, scratch: Scratch
) -> Iterator[Node]:
    if request.param == "base-spec":
        yield Node(containerd, scratch, "j10ce")
    else:
        plugin = containerd.programs / "hook-injector"
        with hook_injector(plugin, containerd.nri_socket, hook.hooks_dir):
            yield Node(containerd, scratch, "runc")
    containerd.cri.remove_all()


def test_a_pods_floor(hook: InstalledHook, node: Node) -> None:
    pod = node.pod()
    hook.pod(pod.uid, {"app": FLOOR})
    assert node.run(pod) == ["777", "33554432"]
    assert hook.missed() == {}


def test_the_sandbox_is_skipped(hook: InstalledHook, node: Node) -> None:
    pod = node.pod()
    hook.fail("closed")
    hook.pod(pod.uid, {"*": FLOOR})
    sandbox = node.containerd.cri.run_pod(pod, node.handler)
    folder = node.scratch.folder("memory", "kubepods", "burstable", f"pod{pod.uid}", sandbox)
    assert (folder / "memory.soft_limit_in_bytes").read_text().strip() == UNLIMITED
    assert hook.missed() == {}


def test_nothing_is_left(hook: InstalledHook, node: Node) -> None:
    pod = node.pod()
    hook.pod(pod.uid, {"app": FLOOR})
    node.run(pod)
    node.containerd.cri.remove_all()
    place = f"kubepods/burstable/pod{pod.uid}"
    assert [path for path in node.scratch.below() if path.startswith(f"{place}/")] == []
    assert sorted(file.name for file in hook.run.iterdir()) == ["pods"]


def test_without_an_entry_it_starts_as_its_class(hook: InstalledHook, node: Node) -> None:
    hook.default("Burstable", FLOOR[1:])
    pod = node.pod()
    assert node.run(pod) == ["204", "33554432"]
    ((said),) = hook.missed().values()
    assert f"pod\t{pod.uid}\ncontainer\tapp\n" in said


def test_a_file_not_to_be_trusted_fails_open(hook: InstalledHook, node: Node) -> None:
    pod = node.pod()
    hook.pod(pod.uid, {"app": FLOOR})
    (hook.run / "pods" / pod.uid).chmod(0o644)
    assert node.run(pod) == ["204", UNLIMITED]
    (said,) = hook.missed().values()
    assert "mode 0600" in said


def test_and_fails_closed_by_roots_word(hook: InstalledHook, node: Node) -> None:
    pod = node.pod()
    hook.pod(pod.uid, {"app": FLOOR})
    (hook.run / "pods" / pod.uid).chmod(0o644)
    hook.fail("closed")
    cri = node.containerd.cri
    container = cri.create(cri.run_pod(pod, node.handler), pod, READS)
    refused = cri.start(container)
    assert refused.code != 0
    assert "mode 0600" in refused.stderr
    assert cri.output(pod, READS) == ""
    folder = node.scratch.folder("memory", "kubepods", "burstable", f"pod{pod.uid}", container)
    until(lambda: not folder.exists(), "nothing of it is left")


def test_the_nodes_own_pods_start_whatever_happens(hook: InstalledHook, node: Node) -> None:
    pod = node.pod(namespace="kube-system")
    hook.pod(pod.uid, {"app": FLOOR})
    (hook.run / "pods" / pod.uid).chmod(0o644)
    hook.fail("closed")
    assert node.run(pod) == ["204", UNLIMITED]


def test_a_pod_may_ask_to_fail_closed(containerd: Containerd, hook: InstalledHook, scratch: Scratch) -> None:
    """Where its annotation is let through: pod_annotations of the runtime handler."""
    node = Node(containerd, scratch, "j10ce")
    with pytest.raises(RuntimesError, match="it must not start"):
        node.run(node.pod({"j10ce.io/hook-fail": "closed"}))
    assert node.run(node.pod()) == ["204", UNLIMITED]
    containerd.cri.remove_all()


def test_the_uid_of_another_pod_is_not_seen(hook: InstalledHook, node: Node) -> None:
    """Pod annotations reach the hook only where the node's administrator lets them."""
    hook.pod(OTHER, {"*": [(1, "set", "cpu.shares", "9999")]})
    pod = node.pod({"io.kubernetes.pod.uid": OTHER, "io.kubernetes.cri.sandbox-uid": OTHER})
    hook.pod(pod.uid, {"app": FLOOR})
    node.scratch.make("kubepods", "burstable", f"pod{OTHER}", "neighbour")
    before = node.scratch.snapshot()
    assert node.run(pod) == ["777", "33554432"]
    node.containerd.cri.remove_all()
    assert node.scratch.snapshot() == before


def test_huge_annotations(hook: InstalledHook, node: Node) -> None:
    """256 KiB are the most that Kubernetes allows."""
    pod = node.pod({"j10ce.io/big": "x" * 262_000})
    hook.pod(pod.uid, {"app": FLOOR})
    assert node.run(pod) == ["777", "33554432"]


def test_an_update_brings_the_runtimes_values_back(hook: InstalledHook, node: Node) -> None:
    """Known drift: UpdateContainerResources applies the whole spec again; the reconciler repairs it."""
    pod = node.pod()
    hook.pod(pod.uid, {"app": FLOOR})
    cri = node.containerd.cri
    container = cri.create(cri.run_pod(pod, node.handler), pod, STAYS)
    cri.start(container).succeeded()
    place = ("kubepods", "burstable", f"pod{pod.uid}", container)
    shares = node.scratch.folder("cpu", *place) / "cpu.shares"
    soft = node.scratch.folder("memory", *place) / "memory.soft_limit_in_bytes"
    assert (shares.read_text(), soft.read_text()) == ("777\n", "33554432\n")
    cri.call("update", "--memory", "134217728", container).succeeded()
    assert (shares.read_text(), soft.read_text()) == ("204\n", "33554432\n")


def test_the_base_spec_brings_the_hook_and_nothing_else(
    containerd: Containerd, hook: InstalledHook, scratch: Scratch
) -> None:
    specs = {}
    for handler in ("runc", "j10ce"):
        node = Node(containerd, scratch, handler)
        pod = node.pod()
        container = containerd.cri.create(containerd.cri.run_pod(pod, handler), pod, READS)
        text = json.dumps(containerd.cri.inspect(container)["info"]["runtimeSpec"])
        specs[handler] = json.loads(text.replace(pod.uid, "UID").replace(pod.name, "NAME"))
    assert list(specs["j10ce"].pop("hooks")) == ["createRuntime"]
    for spec in specs.values():
        for key in ("mounts", "annotations"):  # they name the sandbox
            del spec[key]
        del spec["linux"]["cgroupsPath"], spec["linux"]["namespaces"], spec["process"]["env"]
    assert specs["j10ce"] == specs["runc"]
    containerd.cri.remove_all()


def test_containers_start_when_the_hook_was_uninstalled(
    programs: Path, scratch: Scratch, soon_gone: tuple[InstalledHook, Callable[[], None]]
) -> None:
    """containerd reads the base spec once: until its restart it names a hook that is gone."""
    hook, uninstall = soon_gone
    with rig.containerd(programs, Options({"j10ce": Handler(hook.base_spec)}, patience=PATIENCE)) as running:
        node = Node(running, scratch, "j10ce")
        pod = node.pod()
        hook.pod(pod.uid, {"app": FLOOR})
        assert node.run(pod) == ["777", "33554432"]
        with pytest.raises(AssertionError, match="Nothing was changed"):
            uninstall()
        configuration = running.folder / "config.toml"
        configuration.write_text(configuration.read_text().replace(str(hook.base_spec), ""))
        uninstall()
        assert not hook.base_spec.exists()
        assert node.run(node.pod()) == ["204", UNLIMITED]


def test_where_pod_annotations_pass_those_of_another_runtime_count_for_nothing(
    containerd: Containerd, hook: InstalledHook, scratch: Scratch
) -> None:
    node = Node(containerd, scratch, LYING)
    hook.fail("closed")
    lying = node.pod({"io.kubernetes.pod.uid": OTHER, "io.kubernetes.cri-o.ContainerType": "sandbox"})
    hook.pod(lying.uid, {"app": FLOOR})
    assert node.run(lying) == ["777", "33554432"]
    assert hook.missed() == {}
    containerd.cri.remove_all()
