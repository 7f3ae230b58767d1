"""The agent's own copy of what it knows: it starts and works from it when no API server answers.

Two lines: a header (what it is, its version, size and SHA-256 of the rest), and Known as JSON. Written as a
whole, at most once a second. There is no time in it that a clock's step could make wrong.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
from prometheus_client import CollectorRegistry, Counter

from adapters import atomic_file
from agent.state import Known

log = logging.getLogger(__name__)

VERSION: Final = 4
NAME: Final = "known.json"
_KIND: Final = "j10ce-agent-known"
_LARGEST: Final = 256 * 1024 * 1024
_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 10.0

Upgrade: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]


def _with_classes(body: dict[str, Any]) -> dict[str, Any]:
    values = body.get("priorities", {}).items()
    return body | {"priority_classes": {name: (value, False) for name, value in values}}


def _uncounted(body: dict[str, Any]) -> dict[str, Any]:
    """A pod without the annotation had "" for its policy, which now says that it fills no slot."""
    pods = body.get("pods", {}).items()
    return body | {"pods": {uid: pod | {"policy": pod.get("policy") or None} for uid, pod in pods}}


def _with_labels(body: dict[str, Any]) -> dict[str, Any]:
    """Labels of the link alone were kept before."""
    return body | {"node_labels": body.get("link_labels", {})}


UPGRADES: Final[Mapping[int, Upgrade]] = {1: _with_classes, 2: _uncounted, 3: _with_labels}
"""By version: makes a body of it one of the next version."""


class _Header(msgspec.Struct):
    kind: str
    version: int
    size: int
    sha256: str


_HEADER: Final = msgspec.json.Decoder(_Header)
_KNOWN: Final = msgspec.json.Decoder(Known)
_ENCODER: Final = msgspec.json.Encoder()


class Store:
    """FOLDER/known.json. Nothing it meets ends the agent: errors are logged and counted.

    A file of a newer version, which an agent that was here before wrote, is not read, and kept until a source
    has spoken (`spoken`): the newer agent may come back. One that is damaged is put aside as known.json.bad.
    """

    def __init__(
        self,
        folder: Path,
        *,
        registry: CollectorRegistry | None = None,
        upgrades: Mapping[int, Upgrade] = UPGRADES,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._file = folder / NAME
        self._upgrades = upgrades
        self._clock, self._sleep = clock, sleep
        self._changed = asyncio.Event()
        self._reserved = False
        self._written = ""
        self._writing: asyncio.Future[None] | None = None
        self._failing = False
        self._saves = Counter(
            "j10ce_agent_store_saves",
            "Writes of the agent's own copy of pods and rules, by outcome: written, failed.",
            ["outcome"],
            registry=registry,
        )

    def load(self) -> Known | None:
        """What was last saved. None: there is nothing that can be used; a log line says why."""
        atomic_file.sweep(self._file.parent)
        try:
            return self._read(atomic_file.read(self._file, _LARGEST))
        except FileNotFoundError:
            log.info("store empty file=%s", self._file)
        except _NewerError as error:
            self._reserved = True
            log.warning("store newer file=%s why=%r: kept until a source has spoken", self._file, str(error))
        except OSError as error:
            log.warning("store unread file=%s why=%r: starting without it", self._file, str(error))
        except (atomic_file.Untrusted, ValueError, msgspec.MsgspecError) as error:
            log.warning("store unusable file=%s why=%r: starting without it", self._file, str(error))
            with suppress(OSError):
                self._file.replace(self._file.with_name(f"{NAME}.bad"))
        return None

    def changed(self) -> None:
        """Known has changed, and is to be saved."""
        self._changed.set()

    def spoken(self) -> None:
        """A source has reported everything there is: the file's content is needed no longer."""
        self._reserved = False
        self._changed.set()

    async def run(self, known: Known) -> None:
        """Save what changes, at most once a second, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            began, seconds = self._clock(), _SECONDS
            if not await self.save(known):
                self._changed.set()
                seconds = _RETRY_SECONDS
            await self._sleep(max(0.0, seconds - (self._clock() - began)))

    async def save(self, known: Known) -> bool:
        """Save now; False: it could not be, and the file is as it was.

        The disk is waited for in a thread: one that is slow or gone must not hold up the node.
        """
        if self._reserved:
            return True
        await self._written_out()
        data, checksum = _encoded(known)
        if checksum == self._written:
            return True
        self._writing = asyncio.ensure_future(asyncio.to_thread(self._write, data))
        try:
            await asyncio.shield(self._writing)
        except (OSError, atomic_file.Untrusted) as error:
            self._saves.labels("failed").inc()
            if not self._failing:
                log.warning("store unsaved file=%s error=%r: the old one stays", self._file, str(error))
            self._failing = True
            return False
        if self._failing:
            log.info("store saved again file=%s", self._file)
        self._saves.labels("written").inc()
        self._written, self._failing = checksum, False
        return True

    async def _written_out(self) -> None:
        """A write that was under way when its saver was cancelled must not end after the next one."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    def _write(self, data: bytes) -> None:
        atomic_file.make_folder(self._file.parent)
        atomic_file.write(self._file, data)

    def _read(self, data: bytes) -> Known:
        first, _, body = data.partition(b"\n")
        header = _HEADER.decode(first)
        if header.kind != _KIND:
            raise ValueError(f"it is a {header.kind!r}")
        if header.version > VERSION:
            raise _NewerError(f"version {header.version}, and this agent knows {VERSION}")
        if len(body) != header.size or _checksum(body) != header.sha256:
            raise ValueError(
                f"{len(body)} bytes do not match its size {header.size} and SHA-256: it is damaged"
            )
        if header.version == VERSION:
            return _KNOWN.decode(body)
        return self._upgraded(header.version, msgspec.json.decode(body))

    def _upgraded(self, version: int, body: dict[str, Any]) -> Known:
        for step in range(version, VERSION):
            if step not in self._upgrades:
                raise ValueError(f"version {version} is older than this agent can read")
            body = self._upgrades[step](body)
        log.info("store upgraded file=%s from=%d to=%d", self._file, version, VERSION)
        return msgspec.convert(body, Known)


class _NewerError(Exception):
    pass


def _encoded(known: Known) -> tuple[bytes, str]:
    """The file's bytes, and the checksum of what is in it.

    Provisional pods are left out: after a restart the runtime reports those that still run.
    """
    lasting = {uid: one for uid, one in known.pods.items() if not one.provisional}
    kept = replace(known, pods=lasting)
    body = _ENCODER.encode(kept) + b"\n"
    header = _Header(_KIND, VERSION, len(body), _checksum(body))
    return _ENCODER.encode(header) + b"\n" + body, header.sha256


def _checksum(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
