"""How the node's link is divided, and what single pods are asked to keep to: options, and files of others.

Koordinator's slo-controller-config comes from the API server (agent.network.koordinator), or a file a key, as
a ConfigMap is mounted; then terway-qos' files of the node, which count before it, and of its pods. Units of
each are turned where they are parsed (qos.network.peers, qos.pods.peers.terway).
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from adapters import atomic_file
from agent.network import koordinator
from qos.network.bands import DEFAULT, Configuration
from qos.network.peers import with_global_bps_config, with_node_json, with_slo_controller_config
from qos.pods.peers.asked import Asked
from qos.pods.peers.terway import per_cgroup_bps_limit, pod_json

LOOK_SECONDS: Final = 5.0
"""Between two looks; a file counts when two in turn have found it the same: terway-qos writes in place."""
_MOST_BYTES: Final = 4 << 20
_OF_PODS: Final = {"pod.json": pod_json, "per_cgroup_bps_limit": per_cgroup_bps_limit}
_NODE_JSON: Final = "node.json"
_GLOBAL: Final = "global_bps_config"
NAMES: Final = (*koordinator.KEYS, _NODE_JSON, _GLOBAL, *_OF_PODS)
_LINES: Final = frozenset({_GLOBAL, "per_cgroup_bps_limit"})
"""The others are JSON."""
NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

log = logging.getLogger(__name__)

_Signature = tuple[int, ...] | None
"""What a change of a file changes; None: there is none."""


class Configured:
    """base: what the options say. folder: of the files, owned by who runs this; None: there are none.

    `configuration`: of the node. `problems`: what of the files has no effect, and why. A file that cannot be
    read, or is no JSON, counts as it was read last; one that is gone says nothing any more.
    """

    def __init__(self, base: Configuration = DEFAULT, folder: Path | None = None) -> None:
        self._base, self._folder = base, folder
        self._texts: dict[str, str] = {}
        self._unread: dict[str, str] = {}
        self._seen: dict[str, _Signature] = {}
        self._taken: dict[str, _Signature] = {}
        self._for: tuple[Mapping[str, str], Mapping[str, str]] | None = None
        """The labels, and the ConfigMap, that the files were parsed with; None: nothing was parsed."""
        self._pods: Mapping[str, Mapping[str, Asked]] = {}
        self.configuration = base
        self.problems: tuple[str, ...] = ()

    def of_pod(self, uid: str) -> Mapping[str, Asked]:
        """What files say of a pod, by the file's name."""
        return self._pods.get(uid, {})

    def look(self, labels: Mapping[str, str], told: Mapping[str, str] = NOTHING) -> bool:
        """Read what has changed; whether anything is not as before. labels: of the Node. told: what
        Koordinator's ConfigMap says, by key; a file of the same name counts before it.
        """
        folder = self._folder
        taken = [self._settle(name, folder / name) for name in NAMES] if folder is not None else []
        if self._for == (labels, told) and not any(taken):
            return False
        self._for = dict(labels), dict(told)
        configuration, pods, problems = self._parsed(labels, told)
        before = self.configuration, self._pods
        self.configuration, self._pods = configuration, pods
        if problems != self.problems:
            for problem in problems:
                log.warning("network file not heeded folder=%s why=%r", self._folder or "none", problem)
            self.problems = problems
        return before != (configuration, pods)

    def _settle(self, name: str, file: Path) -> bool:
        """Take the file as it is now where it was so the last time, too, and at the first look; whether it is
        another than before.
        """
        now = _signature(file)
        settled = self._seen.get(name, now) == now
        self._seen[name] = now
        if not settled or (name in self._taken and self._taken[name] == now):
            return False
        self._taken[name] = now
        self._unread.pop(name, None)
        if now is None:
            self._texts.pop(name, None)
            return True
        try:
            self._texts[name] = _text(name, file)
        except (OSError, ValueError, RecursionError, atomic_file.Untrusted) as error:
            self._unread[name] = f"{name}: {error}; what it said before counts"
        return True

    def _parsed(
        self, labels: Mapping[str, str], told: Mapping[str, str]
    ) -> tuple[Configuration, Mapping[str, Mapping[str, Asked]], tuple[str, ...]]:
        texts, problems = self._texts, list(self._unread.values())
        data: dict[str, str] = {**told, **{key: texts[key] for key in koordinator.KEYS if key in texts}}
        configuration, ignored = with_slo_controller_config(self._base, data, labels)
        problems += ignored
        reader, name = (
            (with_node_json, _NODE_JSON) if _NODE_JSON in texts else (with_global_bps_config, _GLOBAL)
        )
        configuration, ignored = reader(configuration, texts.get(name, "{}" if name == _NODE_JSON else ""))
        problems += ignored
        pods: dict[str, dict[str, Asked]] = {}
        for name, parse in _OF_PODS.items():
            if name not in texts:
                continue
            said, ignored = parse(texts[name])
            problems += ignored
            for uid, asked in said.items():
                pods.setdefault(uid, {})[name] = asked
        return configuration, pods, tuple(problems)


def _signature(file: Path) -> _Signature:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _text(name: str, file: Path) -> str:
    """What the file says. ValueError: it is no JSON and should be; OSError, Untrusted: it cannot be used."""
    owner = file.parent.stat().st_uid
    if owner != os.geteuid():
        raise atomic_file.Untrusted(f"{file.parent}: its owner is {owner}, and not {os.geteuid()}")
    text = atomic_file.read(file.resolve(), _MOST_BYTES).decode()  # a ConfigMap's keys are symlinks
    if name not in _LINES:
        json.loads(text)
    return text
