"""Pods and containers through CRI, as kubelet makes them, by crictl.

Shapes: k8s.io/cri-api, runtime.v1 (PodSandboxConfig, ContainerConfig), in crictl's JSON.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.runtimes.images import BUSYBOX
from lab.runtimes.programs import SECONDS, Finished, RuntimesError, run

_ON_NODE = 2
"""NamespaceMode NODE: the host's network, so that no CNI is needed."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod as kubelet names it. cgroup_parent is the pod's own cgroup, which kubelet makes beforehand."""

    name: str
    uid: str
    cgroup_parent: str
    namespace: str = "default"
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Container:
    """A container of a pod. resources: LinuxContainerResources, such as {"cpu_shares": 204}."""

    name: str
    command: Sequence[str]
    resources: Mapping[str, int] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cri:
    """crictl on a runtime's socket. folder: what it reads, and the containers' logs."""

    crictl: Path
    socket: Path
    folder: Path

    def call(self, *arguments: str, seconds: float = SECONDS) -> Finished:
        """One crictl command."""
        endpoint = f"unix://{self.socket}"
        argv: list[str | Path] = [self.crictl, "--timeout", f"{seconds:g}s", "--runtime-endpoint", endpoint]
        return run([*argv, "--image-endpoint", endpoint, *arguments], seconds=2 * seconds)

    def run_pod(self, pod: Pod, handler: str = "runc") -> str:
        """Start a pod's sandbox; answer its id."""
        file = self._write(f"{pod.uid}.json", self._pod(pod))
        return self.call("runp", "--runtime", handler, str(file)).succeeded().stdout.strip()

    def create(self, sandbox: str, pod: Pod, container: Container) -> str:
        """Create a container of a pod; answer its id."""
        config = self._write(f"{pod.uid}-{container.name}.json", self._container(container))
        done = self.call("create", "--no-pull", sandbox, str(config), str(self.folder / f"{pod.uid}.json"))
        return done.succeeded().stdout.strip()

    def start(self, container: str) -> Finished:
        """Let a container run; the code tells whether it could."""
        return self.call("start", container)

    def printed(self, pod: Pod, container: Container, lines: int, *, seconds: float = SECONDS) -> list[str]:
        """Wait until a container has printed this many lines; answer all its lines."""
        deadline = time.monotonic() + seconds
        while len(found := self.output(pod, container).splitlines()) < lines:
            if time.monotonic() > deadline:
                raise RuntimesError(f"container {container.name} printed only {found} in {seconds:g} s")
            time.sleep(0.02)
        return found

    def finish(self, container: str, *, seconds: float = SECONDS) -> int:
        """Wait for the end of a container; answer its exit code."""
        deadline = time.monotonic() + seconds
        while True:
            status = self.inspect(container)["status"]
            if status["state"] == "CONTAINER_EXITED":
                return int(status.get("exitCode", 0))
            if time.monotonic() > deadline:
                raise RuntimesError(f"container {container} still is {status['state']} after {seconds:g} s")
            time.sleep(0.02)

    def inspect(self, container: str) -> dict[str, Any]:
        """What the runtime says of a container: status, and info with its pid and runtimeSpec."""
        found: dict[str, Any] = json.loads(self.call("inspect", container).succeeded().stdout)
        return found

    def output(self, pod: Pod, container: Container) -> str:
        """What a container has printed so far."""
        log = self.folder / pod.uid / f"{container.name}.log"
        lines = log.read_text().splitlines() if log.exists() else []
        return "\n".join(line.split(" ", 3)[3] for line in lines)

    def remove_pod(self, sandbox: str) -> None:
        """Stop and remove a pod with what runs in it."""
        self.call("rmp", "--force", sandbox)

    def remove_all(self) -> None:
        """Stop and remove every pod."""
        self.call("rmp", "--all", "--force")

    def _write(self, name: str, document: Mapping[str, Any]) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / name
        file.write_text(json.dumps(document))
        return file

    def _pod(self, pod: Pod) -> dict[str, Any]:
        return {
            "metadata": {"name": pod.name, "uid": pod.uid, "namespace": pod.namespace, "attempt": 0},
            "annotations": dict(pod.annotations),
            "labels": dict(pod.labels),
            "log_directory": str(self.folder / pod.uid),
            "linux": {
                "cgroup_parent": pod.cgroup_parent,
                "security_context": {"namespace_options": {"network": _ON_NODE}},
            },
        }

    def _container(self, container: Container) -> dict[str, Any]:
        return {
            "metadata": {"name": container.name, "attempt": 0},
            "image": {"image": BUSYBOX},
            "command": list(container.command),
            "annotations": dict(container.annotations),
            "log_path": f"{container.name}.log",
            "linux": {
                "resources": dict(container.resources),
                "security_context": {"namespace_options": {"network": _ON_NODE}},
            },
        }
