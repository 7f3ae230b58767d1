"""`make demo-node`: one floor on a real node, through what usually breaks it."""

from __future__ import annotations

import os

import pytest

from lab.binaries import Binaries
from lab.node import demo, rig

pytestmark = [
    pytest.mark.runtime,  # with those that have the machine to themselves: it measures shares of CPUs
    pytest.mark.skipif(os.geteuid() != 0, reason="a real node needs cgroups, namespaces and mounts: be root"),
]


def test_every_promise_is_kept(binaries: Binaries) -> None:
    said: list[str] = []
    rows = demo.run(binaries, rig.provide(), said.append, crowded=True)
    assert [row for row in rows if row.kept is False] == []
    assert len([row for row in rows if row.kept]) == 8
    assert len(rows) == 10
    assert said[-1] == "the agent is killed"
