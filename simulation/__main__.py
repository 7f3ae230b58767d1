"""Sets iterate in the order of hashes, which differ from process to process; the seed decides all here."""

from __future__ import annotations

import os
import sys

if os.environ.get("PYTHONHASHSEED") != "0":
    os.execve(  # noqa: S606 - ourselves
        sys.executable,
        [sys.executable, *sys.orig_argv[1:]],
        {**os.environ, "PYTHONHASHSEED": "0"},
    )

from simulation.commands import app

app()
