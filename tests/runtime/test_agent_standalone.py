"""`j10ce-agent --standalone examples/standalone` beside a real containerd: floors without Kubernetes."""

from __future__ import annotations

import shutil
import signal
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.agent_process import AgentProcess
from lab.runtimes import containerd as rig
from lab.runtimes.cgroups import Scratch
from lab.runtimes.containerd import Containerd, Options
from lab.runtimes.cri import Container, Pod

ROOT = Path(__file__).parents[2]
LOOK = "cat /sys/fs/cgroup/memory/memory.soft_limit_in_bytes; exec sleep 100000"


@dataclass(frozen=True)
class Standalone:
    """A containerd with an agent that reads this folder."""

    containerd: Containerd
    scratch: Scratch
    folder: Path
    agent: AgentProcess

    def start(self, name: str, shares: int) -> tuple[str, int]:
        """A pod of the example: its uid, and what its container first reads of its own soft limit."""
        uid = str(uuid.uuid4())
        where = ("kubepods", "burstable", f"pod{uid}")
        made = self.scratch.make(*where)
        (made.folder("cpu") / "cpu.shares").write_text(str(shares))  # as kubelet does
        pod = Pod(name, uid, self.scratch.path(*where), namespace="shop", labels={"app": name})
        container = Container("app", ["sh", "-c", LOOK], {"cpu_shares": shares})
        cri = self.containerd.cri
        cri.start(cri.create(cri.run_pod(pod), pod, container)).succeeded()
        return uid, int(cri.printed(pod, container, 1)[0])

    def kept(self, uid: str, millicores: int) -> bool:
        """So much is promised to the pod, and its own cgroup has what was planned for that."""
        promised = f"promised\tcpu\t{millicores}\n"
        planned = f"1\tset\tcpu.shares\t{self.shares(uid)}\n"
        file = self.agent.run / "pods" / uid
        text = file.read_text() if file.exists() else ""
        return promised in text and planned in text

    def shares(self, uid: str) -> int:
        """What the pod's own cgroup has."""
        return int(
            (self.scratch.folder("cpu", "kubepods", "burstable", f"pod{uid}") / "cpu.shares").read_text()
        )


@pytest.fixture
def standalone(programs: Path, scratch: Scratch, tmp_path: Path) -> Iterator[Standalone]:
    folder = Path(shutil.copytree(ROOT / "examples" / "standalone", tmp_path / "policies"))
    with rig.containerd(programs, Options(patience=30)) as containerd:
        agent = AgentProcess(tmp_path, "--standalone", folder, "--nri-socket", containerd.nri_socket)
        agent.start()
        try:
            agent.until(lambda: agent.metric("j10ce_agent_nri_connected"), "containerd is reached")
            yield Standalone(containerd, scratch, folder, agent)
        finally:
            agent.end(signal.SIGTERM)
    assert "Traceback" not in agent.logged()


def test_the_example(standalone: Standalone) -> None:
    """The floor is there before the first instruction; it follows the file, and goes with it."""
    policy = standalone.folder / "policy.yaml"
    text = policy.read_text()
    policy.write_text(text.replace("cpu: 500m", "cpu: 100m"))  # what a busy test machine surely has
    standalone.start("batch", 1024)
    uid, first = standalone.start("checkout", 102)
    assert first == 496_603_136  # memoryHighPercent 90 of what is between 128Mi and 512Mi
    standalone.agent.until(lambda: standalone.kept(uid, 100), "a tenth of a CPU is promised and given")
    before = standalone.shares(uid)
    assert before > 102, "beside a pod of ten times its weight"
    policy.write_text(text.replace("cpu: 500m", "cpu: 150m"))
    standalone.agent.until(lambda: standalone.kept(uid, 150), "more is promised, and planned")
    assert standalone.shares(uid) > before, "more is given"
    policy.unlink()
    standalone.agent.until(
        lambda: standalone.shares(uid) == 102, "nothing is promised, and the cgroup is as kubelet had it"
    )


def test_every_metric_is_documented(standalone: Standalone) -> None:
    standalone.start("checkout", 102)
    pages = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    shown = [line.split()[2] for line in standalone.agent.get("/metrics")[1].splitlines() if "# TYPE" in line]
    assert len(shown) > 20
    assert [name for name in shown if f"`{name}" not in pages] == []
