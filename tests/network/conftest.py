"""Real qdiscs and real traffic, in network namespaces. Needs root, iproute2, and iperf3 for traffic."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.network.node import Node, bpf_file_system, node

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker("network")
            if os.geteuid() != 0:
                item.add_marker(pytest.mark.skip("needs root: BPF, network namespaces"))


@pytest.fixture(name="node")
def _node() -> Iterator[Node]:
    with node() as made:
        yield made


@pytest.fixture
def bpffs(tmp_path: Path) -> Iterator[str]:
    """A BPF file system of the test's own."""
    with bpf_file_system(tmp_path) as folder:
        yield folder
