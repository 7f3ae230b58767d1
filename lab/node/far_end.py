"""Whom the pods of a real node talk to: this machine, at the other end of the node's link.

A process of its own (far_traffic.py), which takes its traces away however this one ends.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from lab.cluster import LabError


@dataclass(frozen=True, slots=True)
class Reached:
    """Where pods find the far end: its address, and for a name its ports in the order of far_traffic.WAYS."""

    address: str
    ports: Mapping[str, Sequence[int]]


class FarEnd:
    """It listens, from `with` to its end, and all that the node sends and receives goes over a wire of its.

    node: its address. bits: of the wire, a second each way. network: the pods'. names: of those who send.
    LabError: it ended.
    """

    def __init__(self, node: str, bits: int, network: str, names: Sequence[str]) -> None:
        self._argv = [sys.executable, "-P", "-m", "lab.node.far_traffic", node, str(bits), network, *names]
        self._program: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        pipe = subprocess.PIPE
        self._program = subprocess.Popen(
            self._argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        )
        self.reached = Reached(**self._ask("where"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._program is not None:
            self._program.communicate()

    @contextlib.contextmanager
    def flowing(self) -> Iterator[None]:
        """Everybody sends and receives all he can, during the block."""
        self._ask("go")
        try:
            yield
        finally:
            self._ask("stop")

    def rates(self, seconds: float) -> dict[str, Mapping[str, float]]:
        """What receivers got, measured over that time: name -> way -> bits/s of frames."""
        found: dict[str, Mapping[str, float]] = self._ask("rates", seconds)
        return found

    def _ask(self, *words: object) -> Any:
        program = self._program
        if program is None or program.stdin is None or program.stdout is None:
            raise LabError("the far end does not run")
        with contextlib.suppress(BrokenPipeError):
            program.stdin.write(json.dumps(words) + "\n")
            program.stdin.flush()
        if not (answer := program.stdout.readline()):
            raise LabError(f"the far end ended: {program.communicate()[1][-2000:]}")
        return json.loads(answer)
