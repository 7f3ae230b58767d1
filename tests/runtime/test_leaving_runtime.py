"""`j10ce node restore` beside a real containerd: specs of containers say again what others want."""

from __future__ import annotations

import shutil
import signal
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.agent_process import AgentProcess
from lab.runtimes import containerd as rig
from lab.runtimes.cgroups import Scratch
from lab.runtimes.containerd import Containerd, Options
from lab.runtimes.cri import Container, Pod
from lab.runtimes.programs import Finished, run

ROOT = Path(__file__).parents[2]
J10CE = Path(sys.executable).with_name("j10ce")
SHARES = {"checkout": 102, "batch": 1024}
"""As kubelet has them: the first one is promised more."""


class Node:
    """A containerd with a pod that was there before the agent, and an agent."""

    def __init__(self, containerd: Containerd, scratch: Scratch, folder: Path) -> None:
        self.containerd, self.scratch, self.folder = containerd, scratch, folder
        self.policies = Path(shutil.copytree(ROOT / "examples" / "standalone", folder / "policies"))
        policy = self.policies / "policy.yaml"
        policy.write_text(policy.read_text().replace("cpu: 500m", "cpu: 100m"))
        self.agent = AgentProcess(
            folder, "--standalone", self.policies, "--nri-socket", containerd.nri_socket
        )

    def start(self, name: str) -> str:
        """A pod's container, by id."""
        uid = str(uuid.uuid4())
        where = ("kubepods", "burstable", f"pod{uid}")
        made = self.scratch.make(*where)
        (made.folder("cpu") / "cpu.shares").write_text(str(SHARES[name]))  # as kubelet does
        pod = Pod(name, uid, self.scratch.path(*where), namespace="shop", labels={"app": name})
        resources = {"cpu_shares": SHARES[name], "cpu_quota": 50_000, "cpu_period": 100_000}
        container = Container("app", ["sleep", "100000"], resources)
        cri = self.containerd.cri
        made_id = cri.create(cri.run_pod(pod), pod, container)
        cri.start(made_id).succeeded()
        return made_id

    def agent_starts(self) -> None:
        self.agent.start()
        self.agent.until(lambda: self.agent.metric("j10ce_agent_nri_connected"), "containerd is reached")

    def said(self, container: str) -> tuple[int, int]:
        """(shares, quota) of its spec, that each update writes again."""
        cpu = self.containerd.cri.inspect(container)["info"]["runtimeSpec"]["linux"]["resources"]["cpu"]
        return cpu["shares"], cpu["quota"]

    def has(self, container: str) -> tuple[int, int]:
        """(shares, quota) that the kernel has."""
        (folder,) = self.scratch.folder("cpu", "kubepods").glob(f"*/*/{container}")
        files = ("cpu.shares", "cpu.cfs_quota_us")
        shares, quota = (int((folder / file).read_text()) for file in files)
        return shares, quota

    def restore(self, socket: Path | None = None) -> Finished:
        folders = ["--run", str(self.agent.run), "--state", str(self.agent.state)]
        socket = socket or self.containerd.nri_socket
        return run([str(J10CE), "node", "restore", *folders, "--nri-socket", str(socket)])

    def until(self, condition: Callable[[], object], what: str) -> None:
        self.agent.until(condition, what)


@pytest.fixture
def node(programs: Path, scratch: Scratch, tmp_path: Path) -> Iterator[Node]:
    with rig.containerd(programs, Options(patience=30)) as containerd:
        made = Node(containerd, scratch, tmp_path)
        try:
            yield made
        finally:
            made.agent.end()
            containerd.cri.remove_all()


KUBELETS = SHARES["checkout"], 50_000


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGKILL])
def test_specs_say_again_what_others_want(node: Node, sig: signal.Signals) -> None:
    """Of one that was there before the agent, and of one that was born under it; and updates keep that."""
    before = node.start("checkout")
    node.agent_starts()
    born = node.start("checkout")
    both = (before, born)
    node.until(lambda: all(node.said(one) != KUBELETS for one in both), "the runtime is told")
    node.agent.end(sig)
    node.restore().succeeded()
    assert [node.said(one) for one in both] == [node.has(one) for one in both] == [KUBELETS] * 2
    assert not node.agent.run.exists()
    for one in both:
        node.containerd.cri.call("update", "--memory", "134217728", one).succeeded()
    assert [node.has(one) for one in both] == [KUBELETS] * 2


def test_a_resize_after_the_agents_end_is_somebody_elses(node: Node) -> None:
    node.agent_starts()
    one = node.start("checkout")
    node.until(lambda: node.said(one) != KUBELETS, "the runtime is told")
    node.agent.end(signal.SIGTERM)
    node.containerd.cri.call("update", "--cpu-share", "300", one).succeeded()
    node.restore().succeeded()
    assert node.said(one)[0] == node.has(one)[0] == 300


def test_without_a_runtime_the_rest_is_done_and_it_can_be_tried_again(node: Node) -> None:
    node.agent_starts()
    one = node.start("checkout")
    node.until(lambda: node.said(one) != KUBELETS, "the runtime is told")
    node.agent.end(signal.SIGTERM)
    done = node.restore(node.folder / "nobody.sock")
    assert (done.code, one in done.stderr) == (1, True)
    assert node.has(one) == KUBELETS
    assert node.said(one) != KUBELETS
    node.restore().succeeded()
    assert node.said(one) == node.has(one) == KUBELETS


def test_the_end_of_a_policy_is_told_to_the_runtime(node: Node) -> None:
    node.agent_starts()
    one = node.start("checkout")
    node.until(lambda: node.said(one) != KUBELETS, "the runtime is told")
    (node.policies / "policy.yaml").unlink()
    node.until(lambda: node.said(one) == node.has(one) == KUBELETS, "the runtime is told of its end")
