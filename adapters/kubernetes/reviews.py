"""Whether the holder of a bearer token may read a page of ours: the API server says, as for kubelet's.

TokenReview says whose token it is, SubjectAccessReview whether that account may `get` the path as a
nonResourceURL: https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final

import msgspec

from adapters.api import APIError, ClusterAPI, Resource, Unreachable

log = logging.getLogger(__name__)

_TOKEN_REVIEWS: Final = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", False)
_ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False
)
_FRESH_SECONDS: Final = 120.0
"""Until somebody who may is asked about again, as with kubelet."""
_KEPT_SECONDS: Final = 3600.0
"""How long he still may while the API server does not answer: then metrics are wanted most."""
_MOST_KEPT: Final = 64
_MOST_PEERS: Final = 256


class Access(IntEnum):
    """May the holder read it? The values are the HTTP statuses that say so."""

    ALLOWED = 200
    UNKNOWN = 401
    REFUSED = 403
    TOO_MANY = 429
    NO_ANSWER = 503


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class _Status(msgspec.Struct):
    authenticated: bool = False
    allowed: bool = False
    user: _User = msgspec.field(default_factory=_User)


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


class _Budget:
    """How often one may ask: so often at once, and so often a second from then on."""

    def __init__(self, at_once: float, per_second: float, now: float) -> None:
        self._most, self._per_second = at_once, per_second
        self._spare, self._at = at_once, now

    def has(self, now: float) -> bool:
        self._spare = min(self._most, self._spare + (now - self._at) * self._per_second)
        self._at = now
        return self._spare >= 1

    def spend(self) -> None:
        self._spare -= 1


class Guesses:
    """How many tokens that are not known to be good are asked about: strangers' are no load on the API server
    (one pod may knock at every node), and one of them does not use up what others may.
    """

    def __init__(self, now: float) -> None:
        self._all = _Budget(5.0, 1.0, now)
        self._peers: dict[str, _Budget] = {}

    def may_ask(self, peer: str, now: float) -> bool:
        """Whether one more of this address may be asked about; it counts then."""
        own = self._peers.pop(peer, None) or _Budget(3.0, 0.1, now)
        self._peers[peer] = own
        if len(self._peers) > _MOST_PEERS:
            del self._peers[next(iter(self._peers))]
        if not (own.has(now) and self._all.has(now)):
            return False
        own.spend()
        self._all.spend()
        return True


class Reviews:
    """What the API server says of tokens, for one path. Good answers are kept, bounded in number and age."""

    def __init__(self, api: ClusterAPI, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._api, self._path, self._clock = api, path, clock
        self._allowed: dict[bytes, float] = {}  # digest -> when the API server said so
        self._guesses = Guesses(clock())

    async def access(self, token: str, peer: str) -> Access:
        """What the holder of this token may, who asks from this address; raises nothing."""
        if not token:
            return Access.UNKNOWN
        digest = hashlib.sha256(token.encode()).digest()
        said = self._allowed.get(digest)
        if said is not None and self._clock() - said < _FRESH_SECONDS:
            return Access.ALLOWED
        if said is None and not self._guesses.may_ask(peer, self._clock()):
            return Access.TOO_MANY
        try:
            found = await self._ask(token)
        except (APIError, Unreachable, msgspec.MsgspecError) as error:
            if said is not None and self._clock() - said < _KEPT_SECONDS:
                return Access.ALLOWED
            log.warning("cannot ask whether a token may read path=%s: %s", self._path, error)
            return Access.NO_ANSWER
        self._allowed.pop(digest, None)
        if found is Access.ALLOWED:
            if len(self._allowed) >= _MOST_KEPT:
                del self._allowed[next(iter(self._allowed))]
            self._allowed[digest] = self._clock()
        return found

    async def _ask(self, token: str) -> Access:
        who = await self._review(_TOKEN_REVIEWS, {"token": token})
        if not who.authenticated:
            return Access.UNKNOWN
        user = who.user
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "nonResourceAttributes": {"path": self._path, "verb": "get"},
        }
        return Access.ALLOWED if (await self._review(_ACCESS_REVIEWS, spec)).allowed else Access.REFUSED

    async def _review(self, resource: Resource, spec: dict[str, Any]) -> _Status:
        version = f"{resource.group}/{resource.version}"
        body = {"apiVersion": version, "kind": resource.kind, "spec": spec}
        return msgspec.json.decode(await self._api.create(resource, "", body), type=_Review).status
