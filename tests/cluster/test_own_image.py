"""The image, built from the Dockerfile and run by kubelet on a real node: extender, manager and agent.

Installed by `j10ce install` and by the chart; a flood meets a floor; uninstall leaves the node as it was.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cli.installation import NAMESPACE
from cli.kubectl import Kubectl, KubectlError, as_list, find
from lab.binaries import Binaries, silent
from lab.cluster import Cluster
from lab.helm import helm as helm_program
from lab.node.node import RealNode
from lab.node.rig import Options, real_node
from lab.own_image import NAME, builder
from lab.runtimes import images
from lab.runtimes.images import BUSYBOX
from qos import keys
from tests.cluster.conftest import ClusterFactory
from tests.cluster.floored import thing
from tests.cluster.test_chart import CHART, ROOT, run
from tests.cluster.test_installed_agent import CAPABILITIES, ours_to_give
from tests.waiting import until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.full,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(os.geteuid() != 0, reason="an image is built and a node is made: be root"),
]

J10CE = Path(sys.executable).with_name("j10ce")
KUBE_SCHEDULER = "localhost/kube-scheduler:lab"
HERE = ("--namespace", NAMESPACE)
PROGRAMS = ("deployment/j10ce-scheduler", "deployment/j10ce-manager", "daemonset/j10ce-agent")
SECONDS = 600.0
PATIENT = Options(kubelet={"runtimeRequestTimeout": "9m"})
"""Each container is a copy of half a gigabyte: kubelet's two minutes are too short on a busy disk."""
LARGEST = 700_000_000
"""Bytes; 505 MB were measured on Debian's Python, 200 of them the base."""
MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of the image; its storage, gigabytes, goes at once."""
    with builder() as podman:
        podman.base()
        podman.build(ROOT)
        assert podman.size() < LARGEST
        return podman.save(tmp_path_factory.mktemp("image") / "image.tar")


@pytest.fixture
def node(make_cluster: ClusterFactory, image: Path, binaries: Binaries, tmp_path: Path) -> Iterator[RealNode]:
    """The only node of a cluster, with our image and one of the lab's kube-scheduler."""
    program = binaries.files["kube-scheduler"]
    scheduler = images.of_program(tmp_path / "scheduler.tar", KUBE_SCHEDULER, program, MACHINE)
    with real_node(make_cluster(crds=False), options=PATIENT) as made:
        ctr = (made.programs.runtime / "ctr", "--namespace", "k8s.io", "images", "import", "--local")
        for archive in (image, scheduler):
            made.run([*ctr, "--snapshotter", "native", archive], seconds=SECONDS).succeeded()
        yield made


def by_digest(node: RealNode) -> tuple[str, str]:
    """Repository and digest of the image, by which containerd knows it from now on, as if it were pulled."""
    ctr = (node.programs.runtime / "ctr", "--namespace", "k8s.io", "images")
    listed = node.run([*ctr, "list", f"name=={NAME}"]).succeeded().stdout
    (digest,) = re.findall(r"sha256:[0-9a-f]{64}", listed)
    repository = NAME.rpartition(":")[0]
    node.run([*ctr, "tag", NAME, f"{repository}@{digest}"]).succeeded()
    node.run([*ctr, "remove", NAME]).succeeded()
    return repository, digest


def kubectl_of(cluster: Cluster) -> Kubectl:
    return find(os.environ, cluster.kubeconfig, "")


def give_what_can_be_given(kubectl: Kubectl) -> None:
    """A machine that is a container itself may lack a capability, and runc would start nothing with it."""
    (made,) = kubectl.objects("get", "daemonset", "j10ce-agent", *HERE)
    (agent,) = made["spec"]["template"]["spec"]["containers"]
    added = agent["securityContext"]["capabilities"]["add"]
    given = [name for name in added if name in ours_to_give()]
    if given != added:
        path = "/spec/template/spec/containers/0/securityContext/capabilities/add"
        patch = [{"op": "replace", "path": path, "value": given}]
        kubectl.run("patch", "daemonset", "j10ce-agent", *HERE, "--type=json", "-p", json.dumps(patch))


def rolled_out(kubectl: Kubectl) -> None:
    give_what_can_be_given(kubectl)

    def ready() -> bool:
        pods = kubectl.objects("get", "pods", *HERE)
        kept = [
            one["status"].get("conditions", ()) for one in pods if "deletionTimestamp" not in one["metadata"]
        ]
        return len(kept) == 5 and all(
            ("Ready", "True") in [(c["type"], c["status"]) for c in one] for one in kept
        )

    until(ready, "two schedulers, two managers and the agent are ready", SECONDS, partial(logs, kubectl))


def pod(name: str, app: str, cpu: str) -> dict[str, Any]:
    """A pod for the second scheduler; it writes down the CPU weight that it was born with."""
    container = {
        "name": "main",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", "cat /sys/fs/cgroup/cpu/cpu.shares; exec sleep 100000"],
        "resources": {"requests": {"cpu": cpu}},
    }
    spec = {
        "schedulerName": "j10ce-scheduler", "containers": [container], "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
    }  # fmt: skip
    return thing("v1", "Pod", name, spec, namespace="default", labels={"app": app})


POLICY = thing(
    "j10ce.io/v1alpha1", "MinimalReservationPolicy", "checkout", namespace="default",
    spec={
        "selector": {"matchLabels": {"app": "checkout"}},
        "floor": {"resources": {"cpu": "200m"}},
        "slots": {"count": 2},
    },
)  # fmt: skip


def flooded(kubectl: Kubectl) -> None:
    """The demonstration's story: more pods than fit; then those that the floor is for find their place."""
    kubectl.run("create", "-f", "-", stdin=as_list([POLICY]))
    held = ("get", "mrp", "checkout", "-n", "default", "-o", "jsonpath={.status.slots.held}")
    until(lambda: kubectl.run(*held) == "2", "both slots are held", SECONDS, partial(logs, kubectl))
    batch = [pod(f"batch-{number}", "batch", "100m") for number in range(25)]
    kubectl.run("create", "-f", "-", stdin=as_list(batch))
    told = ("get", "pods", "-n", "default", "-l", "app=batch")

    def refused() -> bool:
        reasons = [
            condition.get("reason", "")
            for one in kubectl.objects(*told)
            for condition in one["status"].get("conditions", ())
            if condition["type"] == "PodScheduled"
        ]
        return len(reasons) == len(batch) and "Unschedulable" in reasons and "" in reasons

    until(refused, "the flood has filled the node", SECONDS, partial(logs, kubectl))
    kubectl.run(
        "create", "-f", "-", stdin=as_list([pod(f"checkout-{n}", "checkout", "200m") for n in (0, 1)])
    )
    ready = ("--for=condition=Ready", "pod", "-l", "app=checkout", "-n", "default")
    kubectl.run("wait", *ready, f"--timeout={SECONDS:.0f}s", seconds=400)
    for one in kubectl.objects("get", "pods", "-n", "default", "-l", "app=checkout"):
        assert one["metadata"]["annotations"][keys.POLICY_ANNOTATION]


def logs(kubectl: Kubectl) -> str:
    """What is to be seen when something did not come about."""
    asked = (
        ("get", "pods", "-A", "-o", "wide"),
        ("get", "events", "-A", "--field-selector=type=Warning"),
        *(("logs", one, *HERE, "--tail=15", "--all-containers") for one in PROGRAMS),
    )
    return "\n".join(tried(kubectl, words) for words in asked)


def tried(kubectl: Kubectl, words: tuple[str, ...]) -> str:
    try:
        return kubectl.run(*words)
    except KubectlError as error:
        return str(error)


def locked_down(kubectl: Kubectl) -> None:
    """What runs from the image writes nothing into it, and has the capabilities that it was given alone."""
    (agent,) = kubectl.objects("get", "daemonset", "j10ce-agent", *HERE)
    security = agent["spec"]["template"]["spec"]["containers"][0]["securityContext"]
    given = sum(1 << CAPABILITIES[name] for name in security["capabilities"]["add"])
    for program, container, capabilities in (
        ("deployment/j10ce-scheduler", "extender", 0),
        ("deployment/j10ce-manager", "manager", 0),
        ("daemonset/j10ce-agent", "agent", given),
    ):
        inside = ("exec", program, "-c", container, *HERE, "--", "python", "-c")
        status = kubectl.run(*inside, "print(open('/proc/self/status').read())")
        found = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert {int(found[f"Cap{of}"], 16) for of in ("Bnd", "Eff", "Prm")} == {capabilities}, program
        assert found["NoNewPrivs"] == "1", program
        tries = "import pathlib\ntry: pathlib.Path('/opt/x').touch()\nexcept OSError as e: print(e.errno)"
        assert kubectl.run(*inside, tries).strip() == "30", f"{program}: a read-only file system"


def traces(node: RealNode) -> str:
    """What of ours the node has: files, and processes."""
    files = node.run(["find", "/run/j10ce", "/var/lib/j10ce", "/etc/j10ce", "-type", "f"]).stdout
    return files + node.run(["pgrep", "-a", "-f", "j10ce-(agent|extender|manager)"]).stdout


def weights(node: RealNode, kubectl: Kubectl) -> set[str]:
    """The CPU weights of the pods with a floor, and of all that is in them."""
    pods = kubectl.objects("get", "pods", "-n", "default", "-l", "app=checkout")
    found = set()
    for one in pods:
        below = f"/sys/fs/cgroup/cpu/kubepods/burstable/pod{one['metadata']['uid']}"
        files = node.run(["find", below, "-name", "cpu.shares"]).succeeded().stdout.split()
        found |= {node.run(["cat", file]).succeeded().stdout.strip() for file in files}
    return found


def left(node: RealNode, kubectl: Kubectl) -> None:
    """Uninstalled: nothing of ours is on the node, and its pods have what kubelet and runtime gave them."""
    until(lambda: not traces(node), "nothing of ours is on the node", SECONDS, partial(traces, node))
    assert weights(node, kubectl) == {"2", "204"}, "the sandbox's, and kubelet's for 200m"
    found = [
        one["metadata"].get("annotations", {}) for one in kubectl.objects("get", "pods", "-n", "default")
    ]
    assert found
    assert not [key for one in found for key in one if key.startswith(keys.GROUP)]


def test_installed_by_us_it_keeps_a_floor_and_leaves_the_node(node: RealNode) -> None:
    kubectl = kubectl_of(node.cluster)
    where = ("--kubeconfig", node.kubeconfig)
    run(J10CE, "install", "--agent", f"--image={NAME}", f"--scheduler-image={KUBE_SCHEDULER}", *where)
    rolled_out(kubectl)
    locked_down(kubectl)
    flooded(kubectl)
    run(J10CE, "uninstall", "--yes", *where)
    left(node, kubectl)


def test_installed_by_the_chart_by_digest_it_keeps_a_floor(node: RealNode) -> None:
    kubectl = kubectl_of(node.cluster)
    helm = (helm_program(os.environ, silent), "--kubeconfig", node.kubeconfig)
    repository, digest = by_digest(node)
    image = f"image.repository={repository},image.digest={digest}"
    values = f"agent.enabled=true,{image},schedulerImage={KUBE_SCHEDULER}"
    run(*helm, "install", "floors", CHART, *HERE, "--create-namespace", "--set", values)
    rolled_out(kubectl)
    flooded(kubectl)
    run(J10CE, "uninstall", "--yes", "--kubeconfig", node.kubeconfig)
    run(*helm, "uninstall", "floors", *HERE)
    left(node, kubectl)
