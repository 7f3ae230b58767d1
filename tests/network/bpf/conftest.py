"""A BPF file system of the test's own, and two network namespaces joined by a veth; all are gone after it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.network.bpf.installed import Installed
from agent.network.bpf.pins import Pins
from tests.network.bpf.rig import Joined, joined


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests beside this file need the machine's kernel."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.network)
            if os.geteuid() != 0:
                item.add_marker(pytest.mark.skip("needs root: BPF, network namespaces"))


@pytest.fixture
def bpffs(tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "bpf"
    folder.mkdir()
    subprocess.run(["mount", "-t", "bpf", "bpf", folder], check=True)
    try:
        yield str(folder)
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.fixture
def pins(bpffs: str) -> Iterator[Pins]:
    with Pins(bpffs) as opened:
        yield opened


@pytest.fixture
def classifier(pins: Pins) -> Iterator[Installed]:
    with Installed(pins, ["classify"]) as installed:
        yield installed


@pytest.fixture
def pair() -> Iterator[Joined]:
    with joined() as made:
        yield made
