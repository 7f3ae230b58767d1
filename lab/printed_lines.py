"""What a long command prints, a line at a time, and its last lines when it fails."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_LAST_LINES = 20


class CommandFailedError(Exception):
    """The command ended with another status than 0; the message holds the status and its last lines."""


def printed_lines(
    argv: Sequence[str], environ: Mapping[str, str], folder: Path | None = None
) -> Iterator[str]:
    """Run a command, yield its output as it comes; CommandFailedError at the end when it fails.

    Whoever stops listening ends the command.
    """
    last: list[str] = []
    with subprocess.Popen(
        argv,
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as child:
        assert child.stdout is not None
        try:
            for line in child.stdout:
                last = [*last, line.rstrip()][-_LAST_LINES:]
                yield line.rstrip("\n")
        except BaseException:
            child.kill()
            raise
    if child.returncode:
        raise CommandFailedError(f"failed ({child.returncode}):\n" + "\n".join(last))
