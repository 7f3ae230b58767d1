"""What the agent does when the container runtime asks or reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from agent.nri.records import Adjustment, LinuxResources, NriContainer, NriPod


class Handler(Protocol):
    """One coroutine an event. What one raises is logged and counted; the runtime's answer is empty then.

    The runtime holds a lock for the whole node while it waits: answer soon. What takes longer than the budget
    is not ended, but its answer comes too late for this event; what synchronize() and update() return then is
    sent as an update of its own. Never await NriPlugin.update() in here: it waits for that same lock.
    """

    async def synchronize(
        self, pods: list[NriPod], containers: list[NriContainer]
    ) -> Mapping[str, Adjustment]:
        """All that there is, at each new connection. Answer what is to be updated, by container id."""
        ...

    async def pod_started(self, pod: NriPod) -> None:
        """A sandbox runs; no container of it yet."""
        ...

    async def pod_updated(self, pod: NriPod) -> None:
        """The pod's resources were changed (in-place resize). Runtimes before NRI 0.10 do not report it."""
        ...

    async def pod_gone(self, pod: NriPod) -> None:
        """A sandbox is removed. The pod may have got another one, with another id, before."""
        ...

    async def create(self, pod: NriPod, container: NriContainer) -> Adjustment | None:
        """A container's spec was made. Answer what is to be changed in it."""
        ...

    async def starting(self, pod: NriPod, container: NriContainer) -> None:
        """Its cgroups and its first process are there; no instruction of the container has run."""
        ...

    async def update(
        self, pod: NriPod, container: NriContainer, resources: LinuxResources
    ) -> Adjustment | None:
        """Somebody (kubelet) wants these resources. Answer what they are to be instead, where they differ."""
        ...

    async def updated(self, pod: NriPod, container: NriContainer) -> None:
        """The update has been applied: the runtime has written all values of the spec again."""
        ...

    async def stopped(self, pod: NriPod, container: NriContainer) -> None:
        """It has ended, or its creation was undone."""
        ...

    async def removed(self, pod: NriPod, container: NriContainer) -> None:
        """The runtime has forgotten it."""
        ...
