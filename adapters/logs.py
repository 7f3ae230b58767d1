"""Log lines of our programs: key=value on stderr, times in UTC."""

from __future__ import annotations

import logging
import sys
import time
from typing import Final

LEVELS: Final = ("debug", "info", "warning", "error")


def set_up(level: str) -> None:
    """Write log lines of this level (LEVELS) and above. ValueError: no such level."""
    if level.lower() not in LEVELS:
        raise ValueError(f"{level} is not one of {', '.join(LEVELS)}")
    logging.basicConfig(
        stream=sys.stderr,
        level=level.upper(),
        format="time=%(asctime)s.%(msecs)03dZ level=%(levelname)s logger=%(name)s %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S",
    )
    logging.Formatter.converter = time.gmtime
