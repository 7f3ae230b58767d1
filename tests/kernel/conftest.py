"""All of this runs in the test VM (docs/kernel-vm.md): the host's pytest boots it, and takes its reports."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from lab.contention.groups import Tree
from lab.contention.node import Node
from lab.contention.units import UnitTree
from lab.contention.work import Load

if os.environ.get("J10CE_IN_VM") != "1":
    from lab.vm.pytest_plugin import (  # noqa: F401 - hooks, for pytest
        pytest_collection_finish,
        pytest_collection_modifyitems,
        pytest_runtest_protocol,
        pytest_sessionfinish,
        pytest_terminal_summary,
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that is marked systems("plain", "systemd") runs once with each of them as process 1."""
    if marker := metafunc.definition.get_closest_marker("systems"):
        metafunc.parametrize("system", marker.args)


@pytest.fixture(autouse=True)
def system() -> str:
    """What is process 1 where a test does not say."""
    return "plain"


@pytest.fixture
def load() -> Iterator[Load]:
    """What keeps cgroups busy."""
    made = Load()
    yield made
    made.end()


@pytest.fixture
def tree(load: Load, system: str) -> Iterator[Tree]:
    """cgroups that end with the test, with all that runs in them."""
    made = UnitTree() if system == "systemd" else Tree()
    yield made
    made.remove()


@pytest.fixture
def node(tree: Tree) -> Node:
    """A node without pods."""
    return Node(tree)
