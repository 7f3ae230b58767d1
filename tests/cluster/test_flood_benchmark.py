"""`make bench` measures a flood on a real control plane."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks import control_plane
from benchmarks.clusters import Size
from benchmarks.contenders import GO, OWNING, PYTHON, Contender
from lab.binaries import Binaries

pytestmark = [pytest.mark.cluster, pytest.mark.full]


def test_a_small_flood_is_measured(binaries: Binaries) -> None:
    contenders = [*OWNING, Contender(GO, binds=True), Contender(PYTHON, binds=True)]
    found = asyncio.run(control_plane.run(binaries, Size(120, 2, 0), 40, 0.0, contenders))
    assert [one.failed for one in found.values()] == [[]] * len(contenders)
    assert [len(one.rates) for one in found.values()] == [1] * len(contenders)
    assert all(one.rate > 0 for one in found.values())
    assert [len(found[one].waits) for one in OWNING] == [control_plane.OWNERS] * len(OWNING)
