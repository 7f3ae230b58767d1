"""One kind of object kept in Known: what the API server reports, merged into what was known before."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from adapters.kubernetes.node_pods import PodHere, is_static, node_pod
from adapters.kubernetes.wire import DecodeError, Metadata, Object, key_of, read
from agent.state import KnownPod
from agent.sync.source import Changed

log = logging.getLogger(__name__)

T = TypeVar("T")

_OBJECT: Final = msgspec.json.Decoder(Object)


class Followed(Protocol):
    """Receives what a Reflector reports, and the end of its first list.

    unread: how often an object could not be read and stayed as it was known before.
    """

    unread: int

    def set(self, raw: bytes) -> str | None:
        """An object is new or changed: its key, None: it is not kept. DecodeError: it cannot be read."""
        ...

    def remove(self, key: str) -> None:
        """It is gone."""
        ...

    def settle(self) -> None:
        """All objects were reported: those known from before that were not among them are gone."""
        ...


class Keyed(Generic[T]):
    """Objects kept under their key (namespace/name, or name): policies, profiles, PriorityClasses."""

    def __init__(
        self, kept: dict[str, T], decode: Callable[[bytes], tuple[str, T]], changed: Changed
    ) -> None:
        self._kept, self._decode, self._changed = kept, decode, changed
        self._told: set[str] = set()
        self.unread = 0

    def set(self, raw: bytes) -> str | None:
        """Keep it; `changed` is called only if it differs. One that cannot be read stays as it was."""
        try:
            key, rule = self._decode(raw)
        except DecodeError as error:
            key = key_of(_metadata(raw))
            return self._unread(key, error)
        self._told.add(key)
        if self._kept.get(key) != rule:
            self._kept[key] = rule
            self._changed("rules", key)
        return key

    def remove(self, key: str) -> None:
        """Forget it."""
        self._told.discard(key)
        if self._kept.pop(key, None) is not None:
            self._changed("rules", key)

    def settle(self) -> None:
        """Forget what was not reported."""
        for key in self._kept.keys() - self._told:
            self.remove(key)

    def _unread(self, key: str, error: DecodeError) -> str:
        if key not in self._kept:
            raise error
        self.unread += 1
        log.error("object unread key=%s error=%r: it stays as it was known", key, str(error))
        self._told.add(key)
        return key


class OptOuts(Keyed[str]):
    """Namespaces that say something; thousands of others are not kept."""

    def set(self, raw: bytes) -> str | None:
        """Keep it, or forget it when it says nothing any more."""
        key, said = self._decode(raw)
        if said:
            return super().set(raw)
        self.remove(key)
        return None


class Pods:
    """The pods of one node, by the uid of their cgroups.

    `told` is by the API server's uid. Two objects may claim one cgroup (a static pod's mirror that is made
    again, or one that somebody forged): the first that was reported has it for as long as it exists. The
    cgroup's uid is made from the pod's name, too: an object with another name than the one that is known,
    from before or from the runtime, does not count. runs: whether the runtime runs the pod of a uid: a static
    pod whose mirror was deleted goes on.
    """

    def __init__(
        self,
        node: str,
        kept: dict[str, KnownPod],
        changed: Changed,
        runs: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._node, self._kept, self._changed, self._runs = node, kept, changed, runs
        self._told: dict[str, KnownPod] = {}
        self._owners: dict[str, str] = {}
        self._refused: set[str] = set()
        self.unread = 0

    def set(self, raw: bytes) -> str | None:
        """Keep it if it is on this node; `changed` is called only if it differs."""
        try:
            here = node_pod(raw)
        except DecodeError as error:
            return self._unread(_metadata(raw), error)
        if here.node != self._node:
            return None
        if here.forged:
            self._refuse(here.api_uid, known_pod(here), "it is no mirror: its node does not own it")
            return None
        self._told[here.api_uid] = known_pod(here)
        self._keep(here.api_uid)
        return here.api_uid

    def remove(self, key: str) -> None:
        """Forget it; another that claimed the same cgroup has it now."""
        self._refused.discard(key)
        gone = self._told.pop(key, None)
        if gone is None:
            return
        uid = gone.pod.uid
        if self._owners.get(uid) != key:
            return
        del self._owners[uid]
        self._leave(uid)

    def settle(self) -> None:
        """Forget what was not reported; pods that only the runtime has reported are the runtime's."""
        for uid in self._kept.keys() - self._owners.keys():
            if not self._kept[uid].provisional:
                self._leave(uid)

    def _leave(self, uid: str) -> None:
        """The cgroups of this uid have lost their pod: another pod that claimed them has them now, or the pod
        is gone.
        """
        known = self._kept.get(uid)
        if known is not None and is_static(uid) and self._runs(uid):
            self._kept[uid] = replace(known, provisional=True)
            self._changed("pods", uid)
            known = None
        elif known is not None:
            del self._kept[uid]
        heirs = [other for other, one in self._told.items() if one.pod.uid == uid]
        for heir in heirs:
            self._keep(heir)
        if known is not None and not heirs:
            self._changed("pods", uid)

    def _keep(self, api_uid: str) -> None:
        known = self._told[api_uid]
        uid = known.pod.uid
        there, owner = self._kept.get(uid), self._told.get(self._owners.get(uid, ""))
        if there is not None and _name(there) != _name(known):
            self._refuse(api_uid, known, f"the cgroups of this uid are those of {_name(there)}")
            return
        if owner is not None and _name(owner) != _name(known):  # the runtime has said who it is meanwhile
            del self._owners[uid]
        if self._owners.setdefault(uid, api_uid) != api_uid:
            self._refuse(api_uid, known, "another pod has the cgroups of this uid")
        elif there != known:
            self._kept[uid] = known
            self._changed("pods", uid)

    def _refuse(self, api_uid: str, known: KnownPod, why: str) -> None:
        """Once each, in the log and among what was not taken."""
        if api_uid not in self._refused:
            self._refused.add(api_uid)
            self.unread += 1
            log.warning("pod unkept key=%s uid=%s: %s", _name(known), known.pod.uid, why)

    def _unread(self, meta: Metadata, error: DecodeError) -> str:
        before = self._told.get(meta.uid) or self._kept.get(meta.uid)
        if before is None:
            raise error
        self.unread += 1
        log.error("object unread key=%s error=%r: it stays as it was known", key_of(meta), str(error))
        self._told[meta.uid] = before
        self._owners.setdefault(before.pod.uid, meta.uid)
        return meta.uid


def known_pod(here: PodHere) -> KnownPod:
    """The pod as the agent keeps it."""
    return KnownPod(
        here.pod,
        here.ids,
        here.policy,
        here.finished,
        addresses=here.addresses,
        host_network=here.host_network,
    )


def _name(known: KnownPod) -> str:
    return f"{known.pod.namespace}/{known.pod.name}"


def _metadata(raw: bytes) -> Metadata:
    return read(_OBJECT, "object", raw).metadata
