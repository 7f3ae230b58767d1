"""Programs and pins in the test's own BPF file system, and two network namespaces joined by a veth."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent.network.bpf.installed import Installed
from agent.network.bpf.pins import Pins
from tests.network.bpf.rig import Joined, joined


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
