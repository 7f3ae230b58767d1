"""Which events the agent wants, and what each means for its handler."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from typing import Final

from agent.nri import messages_pb2 as pb
from agent.nri import protocol
from agent.nri.handler import Handler
from agent.nri.records import NriContainer, NriPod

Tell = Callable[[Handler, pb.EventRequest], Coroutine[object, object, None]]

TOLD: Final[dict[str, tuple[int, Tell]]] = {
    "RunPodSandbox": (pb.RUN_POD_SANDBOX, lambda to, of: to.pod_started(protocol.pod(of.pod))),
    "PostUpdatePodSandbox": (pb.POST_UPDATE_POD_SANDBOX, lambda to, of: to.pod_updated(protocol.pod(of.pod))),
    "RemovePodSandbox": (pb.REMOVE_POD_SANDBOX, lambda to, of: to.pod_gone(protocol.pod(of.pod))),
    "StartContainer": (pb.START_CONTAINER, lambda to, of: to.starting(*_both(of))),
    "PostUpdateContainer": (pb.POST_UPDATE_CONTAINER, lambda to, of: to.updated(*_both(of))),
    "StopContainer": (pb.STOP_CONTAINER, lambda to, of: to.stopped(*_both(of))),
    "RemoveContainer": (pb.REMOVE_CONTAINER, lambda to, of: to.removed(*_both(of))),
}
"""Events that are answered with nothing: method -> (its number, what the handler receives)."""

UNWANTED: Final = frozenset(
    (
        "StopPodSandbox",
        "UpdatePodSandbox",
        "PostCreateContainer",
        "PostStartContainer",
        "ValidateContainerAdjustment",
    )
)
"""Not subscribed. Should a runtime ask all the same, an empty answer fails nothing; a refusal would."""

METHOD_OF: Final = {number: method for method, (number, _) in TOLD.items()}

_ASKED: Final = (pb.CREATE_CONTAINER, pb.UPDATE_CONTAINER)
_LATER: Final = frozenset((pb.POST_UPDATE_POD_SANDBOX,))
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)\.")
_WITH_POD_UPDATES: Final = (0, 10)


def subscription(nri_version: str, refused: bool) -> int:
    """The bits of the events that are wanted, of those which a runtime of this NRI version knows.

    One it does not know makes it close the connection. nri_version: "" or no version before it has named one.
    refused: it closed the connection after what was subscribed before.
    """
    found = _VERSION.match(nri_version)
    old = refused or not found or (int(found[1]), int(found[2])) < _WITH_POD_UPDATES
    numbers = [*_ASKED, *METHOD_OF]
    return sum(1 << (number - 1) for number in numbers if not (old and number in _LATER))


def _both(request: pb.EventRequest) -> tuple[NriPod, NriContainer]:
    return protocol.pod(request.pod), protocol.container(request.container)
