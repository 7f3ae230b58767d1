"""`make demo-node`: one floor on real nodes, through what usually breaks it."""

from __future__ import annotations

import os

import pytest

from lab.binaries import Binaries, silent
from lab.node import demo, demo_place, rig

pytestmark = [
    pytest.mark.runtime,  # with those that have the machine to themselves: it measures shares of CPUs
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.geteuid() != 0, reason="a real node needs cgroups, namespaces and mounts: be root"),
]


@pytest.mark.parametrize(
    "systemd",
    [
        pytest.param(False, id="namespaces"),
        pytest.param(True, id="systemd", marks=pytest.mark.full),
    ],
)
def test_every_promise_is_kept(binaries: Binaries, systemd: bool) -> None:
    said: list[str] = []
    place = demo_place.in_the_vm(silent) if systemd else demo_place.namespaced(rig.provide())
    rows = demo.run(binaries, place, said.append, crowded=True)
    assert [row for row in rows if row.kept is False] == []
    assert len([row for row in rows if row.kept]) == 14
    assert len(rows) == 17
    assert said[-1] == "what the agent made of the network is taken away"
