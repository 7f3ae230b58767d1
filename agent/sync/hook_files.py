"""RUN/pods/UID and RUN/defaults/CLASS: what the OCI hook writes into a container's cgroups before it starts.

They never expire (until 0): they hold while the agent is away, which is what they are for.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Counter

from adapters import atomic_file
from adapters.kubernetes.reflector import Turn
from agent.planner import PlannedPod
from kernel import cache
from kernel.cache import Entry
from qos.keys import CPU

log = logging.getLogger(__name__)

PODS: Final = "pods"
DEFAULTS: Final = "defaults"
OPTED_OUT: Final = cache.OPTED_OUT


class HookFiles:
    """The files, written only when they differ from what is there.

    spoken: whether all existing pods have been reported. Before that no file is removed that this process has
    not written itself: an agent that knows nothing yet undoes nothing. A full disk, or any other error:
    logged, counted, tried again at the next keep(); the old file stays.
    """

    def __init__(
        self,
        run: Path,
        spoken: Callable[[], bool],
        *,
        registry: CollectorRegistry | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run, self._spoken, self._clock = run, spoken, clock
        self._there: dict[tuple[str, str], int] = {}
        self._swept = False
        self._failing = False
        self._writes = Counter(
            "j10ce_agent_hook_files",
            "Files for the OCI hook, by outcome: written, removed, failed.",
            ["outcome"],
            registry=registry,
        )

    async def keep(self, planned: Iterable[PlannedPod]) -> None:
        """Write what differs, remove the files of pods that are not among these; breathes on the way."""
        turn, wanted = Turn(self._clock), set()
        self._look()
        for one in planned:
            wanted.add(one.uid)
            self.put(one)
            await turn.breathe()
        for folder, key in [each for each in self._there if each[0] == PODS]:
            if key not in wanted:
                self._remove(folder, key)
        if not self._swept and self._spoken():
            self.sweep(wanted)

    def put(self, one: PlannedPod) -> bool:
        """Write the file of a pod if it is not so already; False: it could not be.

        A pod that has no uid yet (a folder's, before the runtime has it) has no file.
        """
        if not cache.is_name(one.uid):
            return True
        settings = {each.name: [setting.entry for setting in each.plan.settings] for each in one.containers}
        if one.decided.opted_out:
            settings = {cache.ANY: []}  # or the hook would give it its class's default
        return self._put(PODS, one.uid, settings, one.decided.kept.get(CPU, 0))

    def put_default(self, qos: str, settings: Mapping[str, list[Entry]]) -> bool:
        """Write what a pod of a QoS class gets that has no file of its own; False: it could not be."""
        return self._put(DEFAULTS, qos, dict(settings), 0)

    def keep_opt_outs(self, namespaces: Collection[str]) -> None:
        """Tell the hook in which namespaces a pod without a file gets nothing, not its class's default."""
        folder = self._run / OPTED_OUT
        try:
            there = {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()
            for name in there - set(namespaces):
                (folder / name).unlink(missing_ok=True)
            for name in sorted(set(namespaces) - there):
                atomic_file.make_folder(self._run)
                atomic_file.make_folder(folder)
                atomic_file.write(folder / name, b"")
        except (OSError, atomic_file.Untrusted) as error:
            self._failed(folder, error)

    def remove(self, uid: str) -> None:
        """The pod has ended."""
        self._remove(PODS, uid)

    def sweep(self, known: Collection[str]) -> None:
        """Remove the files of pods that are not known, left from before this process. Once is enough."""
        folder = self._run / PODS
        try:
            names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
        except OSError as error:
            self._failed(folder, error)
            return
        self._swept = True
        atomic_file.sweep(folder)
        strangers = [name for name in names if cache.is_name(name) and name not in known]
        for name in strangers:
            self._remove(PODS, name)
        if strangers:
            log.info("hook files swept folder=%s removed=%d", folder, len(strangers))

    def _look(self) -> None:
        """Forget the files that somebody removed, so that they are written again."""
        for folder in (PODS, DEFAULTS):
            try:
                with os.scandir(self._run / folder) as entries:
                    names = {entry.name for entry in entries}
            except OSError:
                names = set()
            for lost in [each for each in self._there if each[0] == folder and each[1] not in names]:
                del self._there[lost]

    def _put(self, folder: str, key: str, settings: dict[str, list[Entry]], promised: int) -> bool:
        file, content = (folder, key), hash((promised, *((name, *rest) for name, rest in settings.items())))
        if self._there.get(file) == content:
            return True
        path = self._run / folder
        try:
            if file in self._there or not _is_so(path / key, cache.text(key, 0, settings, "", promised)):
                atomic_file.make_folder(self._run)
                atomic_file.make_folder(path)
                cache.write(str(path), key, 0, settings, "", promised)
                self._writes.labels("written").inc()
        except (OSError, cache.CacheBad, atomic_file.Untrusted) as error:
            self._there.pop(file, None)
            self._failed(path / key, error)
            return False
        self._failing = False
        self._there[file] = content
        return True

    def _remove(self, folder: str, key: str) -> None:
        path = self._run / folder
        try:
            removed = cache.remove(str(path), key)
        except FileNotFoundError:
            removed = False
        except OSError as error:
            self._failed(path / key, error)
            return
        self._there.pop((folder, key), None)
        if removed:
            self._writes.labels("removed").inc()

    def _failed(self, path: Path, error: Exception) -> None:
        """Counted each time, logged once until a write succeeds."""
        self._writes.labels("failed").inc()
        if not self._failing:
            log.warning("hook file unwritten file=%s error=%r: the old one stays", path, str(error))
        self._failing = True


def _is_so(file: Path, text: str) -> bool:
    """Whether an agent before us has written just that."""
    try:
        return atomic_file.read(file, cache.LIMIT) == text.encode()
    except (OSError, atomic_file.Untrusted):
        return False
