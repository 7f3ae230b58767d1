"""A wire of some speed to a real node, at the machine's end of its link: a short queue for each direction.

As at a switch's port, everybody's packets wait in the same queue. What the node sends is redirected to an
IFB, because nothing can wait where it comes in.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from lab.runtimes.programs import require, run

_QUEUE_SECONDS = 0.1
_BURST = 20_000
"""Bytes that may go at once: larger segments are cut."""


@contextlib.contextmanager
def wire(device: str, bits: int) -> Iterator[None]:
    """No more than so many bits/s of frames each way, for the time of the block. RuntimesError."""
    ip, tc, incoming = require("ip"), require("tc"), f"{device}w"
    queue = f"{round(bits / 8 * _QUEUE_SECONDS)}b"
    bucket = ["tbf", "rate", f"{bits}bit", "burst", f"{_BURST}b", "limit", queue]
    everything = ["u32", "match", "u32", "0", "0", "action", "mirred", "egress", "redirect", "dev", incoming]
    steps: list[list[str | Path]] = [
        [ip, "link", "add", incoming, "type", "ifb"],
        [ip, "link", "set", incoming, "up"],
        [tc, "qdisc", "add", "dev", incoming, "root", *bucket],
        [tc, "qdisc", "replace", "dev", device, "root", *bucket],
        [tc, "qdisc", "add", "dev", device, "ingress"],
        [tc, "filter", "add", "dev", device, "parent", "ffff:", "protocol", "all", *everything],
    ]
    try:
        for step in steps:
            run(step).succeeded()
        yield
    finally:  # the device may be gone with its node
        for what in ("ingress", "root"):
            run([tc, "qdisc", "del", "dev", device, what])
        run([ip, "link", "del", incoming])
