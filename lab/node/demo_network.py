"""The network's part of the demonstration: a pod's floor beside a pod that floods the link both ways."""

from __future__ import annotations

import time
from dataclasses import dataclass

from lab.node import demo_link
from lab.node import demo_objects as objects
from lab.node.demo_place import Place
from lab.node.demo_table import Row
from lab.node.far_end import FarEnd
from lab.node.systemd import files

_SETTLED = 1.0
"""Seconds after which connections have found their speed again."""
_WINDOW = 2.0
"""Seconds over which what receivers get is measured."""
_CONVERGED = 30.0
_NEARLY = 0.95
"""What is shaped holds within 5 %."""


@dataclass(frozen=True, slots=True)
class Network:
    """The node's link. repair: milliseconds that the agent may take to put back what somebody deleted."""

    node: Place
    far: FarEnd
    repair: float

    def born(self) -> Row:
        """The pod's classes were there before its containers were started."""
        outcomes, waited = self.node.at_link("starts", files.AGENT_PORT)
        kept = outcomes == {"shaped": 1}
        delivered = f"the runtime waited {waited * 1000:.0f} ms" if kept else f"pods that started: {outcomes}"
        return self._row("its network, before its first packet", delivered, kept=kept)

    def flooded(self, when: str) -> Row:
        """The floor, while another pod wants all of the link."""
        with self.far.flowing():
            got, enough = self._received()
        return self._row(f"its network {when}", got, kept=enough)

    def deleted(self) -> Row:
        """While both pods send and receive somebody deletes the pod's class, then the whole tree."""
        with self.far.flowing():
            self.far.rates(_SETTLED)
            took = [self._repaired_after(what) for what in (demo_link.CLASS, demo_link.QDISC)]
            got, enough = self._received()
        delivered = f"repaired after {' and '.join(f'{one:.0f}' for one in took)} ms; {got}"
        return self._row(
            "its class, then the link's qdisc deleted", delivered, kept=enough and max(took) <= self.repair
        )

    def taken_away(self) -> list[Row]:
        """Nothing of ours stays; then the same flood finds the link as it is without us."""
        self.node.uninstall()
        left = str(self.node.at_link("shown"))
        gone = "10ce" not in left
        with self.far.flowing():
            got, _ = self._received(patience=0.0)
        kernel = "nothing of ours" if gone else left
        return [
            Row("j10ce network uninstall", "nothing of ours", kernel, "", gone),
            Row("its network without us", "", "", got, kept=None),
        ]

    def _repaired_after(self, what: str) -> float:
        """Milliseconds."""
        return float(self.node.at_link("repaired_after", what, self._classes()["egress"]))

    def _received(self, patience: float = _CONVERGED) -> tuple[str, bool]:
        """What both pods get, once the one with the floor has that; False: not within the time."""
        begun = time.monotonic()
        self.far.rates(_SETTLED)
        while True:
            rates = self.far.rates(_WINDOW)
            own, flood = rates[objects.NAME], rates[objects.FLOOD]
            enough = all(own[way] >= _NEARLY * floor for way, floor in self.node.network.items())
            if enough or time.monotonic() > begun + patience:
                said = [f"{way} {_bits(own[way])} (flood {_bits(flood[way])})" for way in self.node.network]
                return ", ".join(said), enough

    def _row(self, promise: str, delivered: str, *, kept: bool) -> Row:
        """A row with the planned rates, and those of the pod's classes."""
        floors, classes = self.node.network, self._classes()
        planned = ", ".join(f"{way} {_bits(bits)}" for way, bits in floors.items())
        kernel = ", ".join(f"{way} {_bits(floors[way]) if one else 'none'}" for way, one in classes.items())
        return Row(promise, planned, kernel, delivered, kept and all(classes.values()))

    def _classes(self) -> dict[str, str]:
        """Way -> the class that has the floor's rate; "": none has."""
        found: dict[str, str] = self.node.at_link("floors", dict(self.node.network))
        return found


def _bits(rate: float) -> str:
    return f"{rate / 1e6:.0f}M" if rate >= 10_000_000 else f"{rate / 1e6:.1f}M"
