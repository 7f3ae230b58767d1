"""The API server as one client meets it: answers take time, get lost, come late; watches lag, break, repeat.

What a request does happens at the server whether its client still waits or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from adapters.api import (
    PODS,
    APIError,
    ClusterAPI,
    Conflict,
    Ended,
    Gone,
    NotFound,
    Page,
    Resource,
    Unreachable,
    WatchEvent,
)
from adapters.writes import merge_patch, require_bindable, require_uid, require_version
from simulation.chance import Chance
from simulation.loop import Part, VirtualLoop
from simulation.store import Body, Entry, Store

UNSETTLED_SECONDS = 55.0
"""The longest after its sending that a request without an answer still takes effect."""


@dataclass(slots=True)
class Fault:
    """What the next request of a verb meets.

    `kind`: lost (never arrives), unanswered (takes effect, the answer is lost), late (the client gives up, it
    takes effect later), error (5xx, nothing happens), conflict (409), forbidden (403), slow (arrives late,
    then is answered), overtaken (arrives, and watches show what it did before the answer comes). `seconds`:
    until the client gives up, or, for slow and overtaken, how much longer it takes; late: until it takes
    effect.
    """

    verb: str
    kind: str
    seconds: float = 0.0


class Stream:
    """One client's watch of one kind: how far it has come, and what disturbs it."""

    def __init__(self, lag: float) -> None:
        self.lag = lag
        self.stalled_until = 0.0
        self.repeat = False
        self.bookmark = False
        self.broken: Exception | None = None
        self.news = asyncio.Event()
        self.position = 0
        """resourceVersion of the last change that was handed over."""


class Client:
    """A ClusterAPI; `name` says whose, `part` is the process that uses it."""

    def __init__(self, name: str, store: Store, loop: VirtualLoop, chance: Chance, *, latency: float) -> None:
        self.name = name
        self.part = Part(loop)
        self.latency = latency
        self.faults: list[Fault] = []
        self.lag = 0.005
        self.streams: dict[str, Stream] = {}
        self.deleting: Callable[[str, bool], None] = lambda _uid, _sent: None
        """Hears of each DELETE, by UID: it is sent, or it came to nothing."""
        self._store, self._loop, self._chance = store, loop, chance
        self._calls: dict[str, int] = {}
        store.listeners.append(self._tell)

    # --- what disturbs it ---

    def stream(self, resource: Resource) -> Stream:
        """The watch of a kind, also while it is not open."""
        if resource.plural not in self.streams:
            self.streams[resource.plural] = Stream(self.lag)
        return self.streams[resource.plural]

    def cut(self, resource: Resource) -> None:
        """Cut the watch; it resumes where it was."""
        self._break(resource, Unreachable("connection lost"))

    def expire(self, resource: Resource) -> None:
        """The history is compacted: 410 Gone."""
        self._store.compacted[resource.plural] = self._store.version
        self._break(resource, _gone())

    def _break(self, resource: Resource, how: Exception) -> None:
        stream = self.stream(resource)
        stream.broken = how
        stream.news.set()

    def bookmark(self) -> None:
        """Let every watch say that it is alive."""
        for stream in self.streams.values():
            stream.bookmark = True
            stream.news.set()

    def unseen(self, plural: str) -> Iterator[Entry]:
        """The changes of a kind that have not been handed over, the newest first."""
        stream = self.streams.get(plural)
        for entry in reversed(self._store.log.get(plural, [])):
            if stream is None or entry.version <= stream.position:
                return
            yield entry

    def behind(self, plurals: Iterable[str], seconds: float) -> bool:
        """True while some change of these kinds, older than so many seconds, has not been handed over."""
        before = self._loop.time() - seconds
        for plural in plurals:
            log = self._store.log.get(plural)
            stream = self.streams.get(plural)
            if not log or stream is None or stream.position >= log[-1].version:
                continue
            if next(e for e in log if e.version > stream.position).at <= before:
                return True
        return False

    def _tell(self, resource: Resource, _entry: Entry, _before: Body | None) -> None:
        stream = self.streams.get(resource.plural)
        if stream is not None:
            stream.news.set()

    # --- requests ---

    async def _request(self, verb: str, name: str, effect: Callable[[], Any]) -> Any:
        count = self._calls[verb] = self._calls.get(verb, 0) + 1
        there = self._chance.between(0.2, 1.0, self.name, verb, name, count) * self.latency
        fault = next((one for one in self.faults if one.verb == verb), None)
        answer: asyncio.Future[Any] = self._loop.create_future()
        if fault is None:
            self._loop.call_later(there, self._serve, self.part, effect, answer, there / 2)
        else:
            self.faults.remove(fault)
            self._disturb(fault, there, effect, answer)
        return await answer

    def _disturb(
        self, fault: Fault, there: float, effect: Callable[[], Any], answer: asyncio.Future[Any]
    ) -> None:
        later, part = self._loop.call_later, self.part
        if fault.kind == "slow":
            later(there + fault.seconds, self._serve, part, effect, answer, there)
            return
        if fault.kind == "overtaken":
            later(there, self._serve, part, effect, answer, fault.seconds)
            return
        if fault.kind == "unanswered":
            later(there, self._serve, part, effect, None, 0.0)
        elif fault.kind == "late":
            at = min(fault.seconds, UNSETTLED_SECONDS)
            later(at, self._serve, part, effect, None, 0.0)
        error: Exception = Unreachable(f"{fault.kind}: no answer")
        after = 0.4 if fault.kind == "late" else fault.seconds
        if fault.kind in ("error", "conflict", "forbidden"):
            after = there
            error = _refusal(fault.kind)
        later(after, _settle, answer, error)

    def _serve(
        self, part: Part, effect: Callable[[], Any], answer: asyncio.Future[Any] | None, back: float
    ) -> None:
        """The request is at the server. A process that ended has closed its connections."""
        if not part.alive:
            return
        try:
            outcome = effect()
        except APIError as error:
            outcome = error
        if answer is not None:
            self._loop.call_later(back, _settle, answer, outcome)

    async def list_page(
        self,
        resource: Resource,
        *,
        limit: int = 500,  # noqa: ARG002 - of the interface
        continue_token: str = "",  # noqa: ARG002
        namespace: str = "",  # noqa: ARG002
        field_selector: str = "",
        label_selector: str = "",
    ) -> Page:
        """Everything on one page."""
        assert (field_selector, label_selector) == ("", ""), "the simulation does not play selections"

        def read() -> Page:
            items = [entry.raw for entry in self._store.entries(resource)]
            return Page(items, str(self._store.version))

        page: Page = await self._request("list", resource.plural, read)
        self.stream(resource).position = int(page.resource_version)
        return page

    async def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        field_selector: str = "",
        opened: Callable[[], None] = lambda: None,
    ) -> AsyncIterator[WatchEvent]:
        """Every later change, in order, each some time after it happened."""
        assert not field_selector, "the simulation does not play selections"
        since, stream = int(resource_version), self.stream(resource)
        log = self._store.log.setdefault(resource.plural, [])
        await asyncio.sleep(self.latency / 4)
        if since < self._store.compacted.get(resource.plural, 0):
            raise _gone()
        opened()
        index = next((i for i, entry in enumerate(log) if entry.version > since), len(log))
        while True:
            stream.news.clear()
            if stream.broken is not None:
                error, stream.broken = stream.broken, None
                raise error
            if index == len(log):
                await stream.news.wait()
                if stream.bookmark and index == len(log) and stream.stalled_until <= self._loop.time():
                    stream.bookmark = False
                    yield self._bookmark(resource)
                continue
            entry = log[index]
            due = max(entry.at + stream.lag, stream.stalled_until)
            if due > self._loop.time():
                await asyncio.sleep(due - self._loop.time())
                continue
            index += 1
            stream.position = entry.version
            yield WatchEvent(entry.type, entry.raw)
            if stream.repeat:
                stream.repeat = False
                yield WatchEvent("MODIFIED" if entry.type == "ADDED" else entry.type, entry.raw)

    def _bookmark(self, resource: Resource) -> WatchEvent:
        version = str(self._store.version)
        return WatchEvent(
            "BOOKMARK", orjson.dumps({"kind": resource.kind, "metadata": {"resourceVersion": version}})
        )

    async def get(self, resource: Resource, namespace: str, name: str, *, subresource: str = "") -> bytes:
        """One object; nothing here has a subresource."""
        assert not subresource
        raw: bytes = await self._request("get", name, lambda: self._store.raw(resource, namespace, name))
        return raw

    async def served(self, group: str, version: str) -> bytes:
        """No custom kind is."""
        raise NotFound(404, "NotFound", f"{group}/{version} is not served")

    @property
    def writes(self) -> int:
        """How many requests that change something were sent, Events aside."""
        return sum(self._calls.get(verb, 0) for verb in ("create", "delete", "patch", "replace", "bind"))

    async def create(self, resource: Resource, _namespace: str, body: Mapping[str, Any]) -> bytes:
        """Create; what nobody looks at (Events) is thrown away."""
        if resource.plural == "events":
            return b""
        raw: bytes = await self._request("create", "", lambda: self._store.create(resource, body))
        return raw

    async def replace(self, resource: Resource, namespace: str, name: str, body: Mapping[str, Any]) -> bytes:
        """PUT; Conflict."""

        def write() -> bytes:
            require_version(self._store.get(resource, namespace, name), body)
            return self._store.write(resource, body)

        raw: bytes = await self._request("replace", name, write)
        return raw

    async def patch(
        self, resource: Resource, namespace: str, name: str, body: Mapping[str, Any], *, subresource: str = ""
    ) -> bytes:
        """Merge patch; a UID or resourceVersion in it is a precondition."""

        def write() -> bytes:
            before = self._store.get(resource, namespace, name)
            require_version(before, body)
            uid = body.get("metadata", {}).get("uid", before["metadata"]["uid"])
            if uid != before["metadata"]["uid"]:
                raise Conflict(409, "Conflict", f"Precondition failed: UID in precondition: {uid}")
            change = {
                key: body[key] for key in ("metadata", "status" if subresource else "spec") if key in body
            }
            if subresource:
                change.pop("metadata", None)
            return self._store.write(resource, merge_patch(before, change))

        raw: bytes = await self._request("patch", name, write)
        return raw

    async def bind(
        self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]
    ) -> None:
        """POST pods/binding."""
        await self._request("bind", name, lambda: bind(self._store, namespace, name, uid, node, annotations))

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        version: str = "",
        grace_seconds: int | None = None,
    ) -> None:
        """DELETE, at once; of a pod only without a grace, which the world plays."""

        def remove() -> None:
            there = self._store.get(resource, namespace, name)
            own = there.get("spec", {}).get("terminationGracePeriodSeconds")
            assert resource is not PODS or (own if grace_seconds is None else grace_seconds) == 0
            require_uid(there["metadata"], uid)
            require_version(there, {"metadata": {"resourceVersion": version}})
            self._store.remove(resource, namespace, name)

        self.deleting(uid, True)
        try:
            await self._request("delete", name, remove)
        except Exception:
            self.deleting(uid, False)
            raise

    async def evict(self, name: str, remove: Callable[[], None]) -> None:
        """DELETE of a pod; what that means for it the world says."""
        await self._request("delete", name, remove)


def bind(
    store: Store, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]
) -> None:
    """Bind a pod; Conflict, NotFound."""
    pod = store.get(PODS, namespace, name)
    require_bindable(pod, uid)
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": store.now()}
    others = [c for c in pod["status"].get("conditions", ()) if c["type"] != "PodScheduled"]
    meta = pod["metadata"]
    store.write(
        PODS,
        {
            **pod,
            "metadata": {**meta, "annotations": {**meta.get("annotations", {}), **annotations}},
            "spec": {**pod["spec"], "nodeName": node},
            "status": {**pod["status"], "conditions": [*others, scheduled]},
        },
    )


def _settle(answer: asyncio.Future[Any], outcome: Any) -> None:
    if answer.done():
        return
    if isinstance(outcome, Exception):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)


def _gone() -> Gone:
    return Gone(410, "Expired", "too old resource version")


def _refusal(kind: str) -> Exception:
    """A new one each time: an exception that is raised keeps all frames that it went through."""
    if kind == "conflict":
        return Conflict(409, "Conflict", "the object has been modified")
    if kind == "forbidden":
        return APIError(403, "Forbidden", "a webhook says no")
    return Ended("500 InternalError: etcdserver: leader changed")


if TYPE_CHECKING:

    def _plays_the_interface(client: Client) -> ClusterAPI:
        return client


__all__ = ["Client", "Fault", "NotFound", "Stream", "bind"]
