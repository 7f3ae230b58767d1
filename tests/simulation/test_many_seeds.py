"""What CI plays of the simulation, in processes of their own: a seed decides even the order of sets."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

SEEDS = 400
"""Three quarters of a minute at most for each part, on a processor of its own: a seed takes 0.1 s."""
OF_PLACEHOLDERS = 80
"""Likewise: a seed takes 0.2 s."""

pytestmark = [pytest.mark.program, pytest.mark.timeout(900)]


@pytest.mark.parametrize("first", [1000, 1000 + SEEDS])
def test_seeds_break_nothing(first: int) -> None:
    assert not broken("extender", first, SEEDS)


def test_seeds_with_placeholders_break_nothing() -> None:
    assert not broken("placeholders", 1000, OF_PLACEHOLDERS)


def broken(keeper: str, first: int, count: int) -> set[int]:
    """The seeds that fail, of so many."""
    argv = [sys.executable, "-P", "-m", "simulation", "--keeper", keeper, "seeds", str(count)]
    argv += ["--first", str(first), "--processes", "1", "--keep-going"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=880, check=False)
    assert f"{count} seeds" in done.stdout, done.stdout + done.stderr
    sys.stdout.write(done.stdout)
    return {int(seed) for seed in re.findall(r"^seed (\d+): ", done.stdout, re.MULTILINE)}
