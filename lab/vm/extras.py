"""What some tests in the guest need of this machine: programs and libraries that no Debian package has."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from lab import node_programs
from lab.only_one import Report

NODE_PROGRAMS = ".guest/node"
"""Below /work in the guest: containerd, crictl ... (lab/node_programs.py), 110 MB."""

LIBRARIES = ".guest/python"
"""Below /work in the guest: what the agent's NRI plugin imports, from this Python's packages."""

_WITH_NODE_PROGRAMS = "tests/kernel/test_containerd.py::"


def of(tests: Iterable[str], environ: Mapping[str, str], report: Report) -> dict[str, Path]:
    """Folders to bring along for these tests (node ids), by place in the guest; they may be built now."""
    if any(test.startswith(_WITH_NODE_PROGRAMS) for test in tests):
        return {NODE_PROGRAMS: node_programs.provide(environ, report)} | _libraries()
    return {}


def _libraries() -> dict[str, Path]:
    """protobuf's folder is google, which has no file of its own."""
    protobuf = importlib.import_module("google.protobuf").__path__[0]
    prometheus = importlib.import_module("prometheus_client").__path__[0]
    folders = (Path(protobuf).parent, Path(prometheus))
    return {f"{LIBRARIES}/{folder.name}": folder for folder in folders}
