"""What CI plays of the simulation, in processes of their own: a seed decides even the order of sets."""

from __future__ import annotations

import subprocess
import sys

import pytest

SEEDS = 130
"""A half minute to a minute for each part, on a processor of its own."""

pytestmark = [pytest.mark.program, pytest.mark.timeout(900)]


@pytest.mark.parametrize("first", [1000, 1000 + SEEDS])
def test_seeds_break_nothing(first: int) -> None:
    argv = [
        sys.executable,
        "-P",
        "-m",
        "simulation",
        "seeds",
        str(SEEDS),
        "--first",
        str(first),
        "--processes",
        "1",
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=880, check=False)
    assert done.returncode == 0, done.stdout
    assert f"{SEEDS} seeds" in done.stdout
