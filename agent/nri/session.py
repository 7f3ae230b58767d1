"""What one connection to a runtime goes through: registered, configured, synchronized, then events."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from agent.nri import events, protocol
from agent.nri import messages_pb2 as pb
from agent.nri.handler import Handler
from agent.nri.metrics import ANSWERED, EMPTY, FAILED, LATE, UNKNOWN, Metrics
from agent.nri.records import Adjustment, NriContainer, harmless, still_missing
from agent.nri.rpc import INTERNAL, UNIMPLEMENTED, Refusal

log = logging.getLogger(__name__)

Late = Callable[[Mapping[str, Adjustment]], Coroutine[object, object, None]]
"""Gets the updates that could not be in an answer."""
T = TypeVar("T")

_SERVICE: Final = "nri.pkg.api.v1alpha1.Plugin"
_MOST_UPDATES: Final = 4
"""In the answer to Synchronize: the runtime applies them, 20 ms each, under a lock of the whole node."""
_OTHER: Final = "other"


async def _nothing(_: object) -> None:
    pass


class Session:
    """Serves the runtime's requests of one connection.

    `ready` is called once the runtime has told what there is; `late` gets updates that follow an answer.
    `going` holds what is not done yet: it may outlive the connection, because what it does is still wanted.
    """

    def __init__(
        self,
        handler: Handler,
        metrics: Metrics,
        clock: Callable[[], float],
        *,
        budget: float,
        refused: bool,
        ready: Callable[[], None],
        late: Late,
        going: set[asyncio.Task[Any]],
    ) -> None:
        self._handler = handler
        self._metrics = metrics
        self._clock = clock
        self._budget = budget
        self._refused = refused
        self._ready = ready
        self._late = late
        self._pods: list[pb.PodSandbox] = []
        self._containers: list[pb.Container] = []
        self._going = going
        self.runtime = ""
        self.nri_version = ""
        self.configured = False
        self.synchronized = False

    async def serve(self, request: pb.Request) -> bytes:
        """Answer one request; its duration and outcome are counted. Refusal: a method that is not NRI's.

        Whatever else goes wrong, the answer is empty, and the runtime goes on without us. Only to Configure
        that would be a wish for every event.
        """
        began = self._clock()
        method, payload = request.method, request.payload
        event, outcome = _OTHER, UNKNOWN
        budget = min(self._budget, request.timeout_nano / 2e9 or self._budget)
        try:
            if request.service != _SERVICE:
                raise Refusal(UNIMPLEMENTED, f"service {request.service}")
            event, outcome, answer = await self._dispatch(method, payload, budget)
        except Refusal:
            raise
        except Exception as error:
            event, outcome, answer = method, FAILED, b""
            log.exception("nri request failed method=%s", method)
            if method == "Configure":
                raise Refusal(INTERNAL, f"{method}: {error!r}") from None
        finally:
            self._metrics.requests.labels(event, outcome).inc()
            self._metrics.seconds.observe(self._clock() - began)
        return answer

    async def _dispatch(self, method: str, payload: bytes, budget: float) -> tuple[str, str, bytes]:
        """(the event's name for the metrics, the outcome, the answer)."""
        if method == "StateChange":
            method, payload = _state_change(payload)
        if method in events.TOLD:
            _, tell = events.TOLD[method]
            work = tell(self._handler, pb.EventRequest.FromString(payload))
            outcome, _ = await self._within(method, work, budget)
            return method, EMPTY if outcome == ANSWERED else outcome, b""
        if method in events.UNWANTED:
            return method, EMPTY, b""
        asked = {
            "Configure": self._configure,
            "Synchronize": self._synchronize,
            "CreateContainer": self._create,
            "UpdateContainer": self._update,
            "Shutdown": self._shutdown,
        }
        if method not in asked:
            raise Refusal(UNIMPLEMENTED, f"method {method}")
        outcome, answer = await asked[method](payload, budget)
        return method, outcome, answer.SerializeToString()

    async def _configure(self, payload: bytes, _: float) -> tuple[str, Message]:
        told = pb.ConfigureRequest.FromString(payload)
        self.runtime = f"{told.runtime_name} {told.runtime_version}".strip()
        self.nri_version = told.nri_version
        if told.request_timeout > 0:
            self._budget = min(self._budget, told.request_timeout / 2000)
        self.configured = True
        log.info(
            "nri configured runtime=%r nri=%s request_timeout_ms=%d budget_s=%g",
            *(self.runtime, told.nri_version or "old", told.request_timeout, self._budget),
        )
        return ANSWERED, pb.ConfigureResponse(events=events.subscription(told.nri_version, self._refused))

    async def _synchronize(self, payload: bytes, budget: float) -> tuple[str, Message]:
        """The last part is answered for all of them: earlier ones must be answered with `more` alone."""
        part = pb.SynchronizeRequest.FromString(payload)
        self._pods.extend(part.pods)
        self._containers.extend(part.containers)
        if part.more:
            return EMPTY, pb.SynchronizeResponse(more=True)
        pods = [protocol.pod(one) for one in self._pods]
        containers = [protocol.container(one) for one in self._containers]
        self._pods, self._containers = [], []
        log.info("nri synchronize pods=%d containers=%d", len(pods), len(containers))
        work = self._changes(self._handler.synchronize(pods, containers), containers)
        done = await self._within("Synchronize", work, budget, self._late)
        self.synchronized = True
        self._ready()
        outcome, wanted = done[0], done[1] or {}
        first = dict(itertools.islice(wanted.items(), _MOST_UPDATES))
        rest = {key: one for key, one in wanted.items() if key not in first}
        if rest:
            self._start(self._late(rest))
        answer = pb.SynchronizeResponse(update=[protocol.update(*one) for one in first.items()])
        return _of(outcome, bool(first)), answer

    async def _changes(
        self, work: Awaitable[Mapping[str, Adjustment]], containers: list[NriContainer]
    ) -> Mapping[str, Adjustment]:
        """Without what the specs say already: after a restart of ours that is nearly all."""
        has = {one.id: one.resources for one in containers}
        wanted = {key: still_missing(has[key], one) for key, one in (await work).items() if key in has}
        return {key: one for key, one in wanted.items() if one}

    async def _create(self, payload: bytes, budget: float) -> tuple[str, Message]:
        request = pb.EventRequest.FromString(payload)
        pod, container = protocol.pod(request.pod), protocol.container(request.container)
        work = self._handler.create(pod, container)
        outcome, wanted = await self._within("CreateContainer", work, budget)
        wanted = harmless(wanted) if wanted else None
        return _of(outcome, bool(wanted)), protocol.adjusted(wanted)

    async def _update(self, payload: bytes, budget: float) -> tuple[str, Message]:
        request = pb.EventRequest.FromString(payload)
        pod, container = protocol.pod(request.pod), protocol.container(request.container)
        work = self._handler.update(pod, container, protocol.asked(request.linux_resources))

        async def late(wanted: Adjustment | None) -> None:
            await self._late({container.id: wanted} if wanted else {})

        outcome, wanted = await self._within("UpdateContainer", work, budget, late)
        updates = [protocol.update(container.id, wanted)] if wanted else []
        return _of(outcome, bool(wanted)), pb.UpdateContainerResponse(update=updates)

    async def _shutdown(self, _: bytes, __: float) -> tuple[str, Message]:
        log.info("nri shutdown runtime=%r", self.runtime)
        return EMPTY, pb.Response()

    async def _within(
        self,
        event: str,
        work: Coroutine[object, object, T],
        budget: float,
        late: Callable[[T], Awaitable[None]] = _nothing,
    ) -> tuple[str, T | None]:
        """(outcome, what the work answered within the budget). Overrun, it goes on, and `late` gets that."""
        task = self._start(work)
        await asyncio.wait({task}, timeout=min(budget, self._budget))
        if not task.done():
            log.warning("nri answer late event=%s budget_s=%g", event, min(budget, self._budget))
            self._start(_afterwards(event, task, late))
            return LATE, None
        if _failed(event, task):
            return FAILED, None
        return ANSWERED, task.result()

    def _start(self, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._going.add(task)
        task.add_done_callback(self._going.discard)
        return task


async def _afterwards(event: str, task: asyncio.Future[T], late: Callable[[T], Awaitable[None]]) -> None:
    await asyncio.wait({task})
    if _failed(event, task):
        return
    log.info("nri work done late event=%s", event)
    await late(task.result())


def _failed(event: str, task: asyncio.Future[T]) -> bool:
    if task.cancelled():
        return True
    error = task.exception()
    if error is not None:
        log.error("nri handler failed event=%s", event, exc_info=error)
    return error is not None


def _of(outcome: str, anything: bool) -> str:
    return EMPTY if outcome == ANSWERED and not anything else outcome


def _state_change(payload: bytes) -> tuple[str, bytes]:
    """The method that a newer runtime would call, and its request; unwanted where there is none."""
    told = pb.StateChangeEvent.FromString(payload)
    request = pb.EventRequest(pod=told.pod, container=told.container)
    return events.METHOD_OF.get(told.event, "StopPodSandbox"), request.SerializeToString()
