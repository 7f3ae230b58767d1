"""Which techniques are used on this kernel: the best that works, and why nothing better is used. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from agent.network.probes import Finding, Technique
from qos.network.wanted import Direction

_T = Technique


class Means(Enum):
    """How one thing is done. A policer drops what is too much; all others let it wait."""

    HTB_TCX = "htb, classified by a BPF program (TCX)"
    HTB_CLSACT = "htb, classified by a BPF program (clsact)"
    HTB_U32 = "htb, classified by u32 filters"
    TBF = "tbf"
    IFB = "htb at an IFB"
    POLICER_TCX = "a policing BPF program (TCX)"
    POLICER_CLSACT = "a policing BPF program (clsact)"
    NONE = "nothing"


POLICERS: Final = frozenset({Means.POLICER_TCX, Means.POLICER_CLSACT})
SHAPES: Final = frozenset({Means.HTB_TCX, Means.HTB_CLSACT, Means.HTB_U32, Means.TBF, Means.IFB})
"""What makes packets wait, and is exact within 5 %; the policers drop them, and are exact within 10 %."""


@dataclass(frozen=True, slots=True)
class Choice:
    """reasons: why each better one is not used, best first."""

    means: Means
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Choices:
    """sending: what leaves the node's link. receiving: what it receives from there, where that is shaped.
    pods: what a pod receives. leaf: the qdisc below a class, "" as HTB has it by itself. policing: of what a
    pod sends, where the link is not known or its qdisc is another's.
    """

    sending: Choice
    receiving: Choice
    pods: Choice
    leaf: str
    leaf_reason: str = ""
    policing: Choice = Choice(Means.NONE)

    @property
    def policed(self) -> frozenset[Direction]:
        """Directions of what a pod may have policed."""
        able = {Direction.EGRESS: self.policing, Direction.INGRESS: self.pods}
        return frozenset(direction for direction, choice in able.items() if choice.means in POLICERS)

    @property
    def tcx(self) -> bool:
        """Whether programs are hung in at TCX, where it matters."""
        return bool({self.sending.means, self.policing.means} & {Means.HTB_TCX, Means.POLICER_TCX})


def choose(findings: Iterable[Finding]) -> Choices:
    """The best of each that works by these findings; what was not tried does not work."""
    found = {finding.technique: finding for finding in findings}
    policers = ((Means.POLICER_TCX, (_T.BPF, _T.TCX)), (Means.POLICER_CLSACT, (_T.BPF, _T.CLSACT)))
    leaf = next((kind for kind in (_T.FQ_CODEL, _T.BFIFO) if not _why(found, kind)), None)
    return Choices(
        sending=_best(
            found,
            (Means.HTB_TCX, (_T.HTB, _T.BPF, _T.TCX)),
            (Means.HTB_CLSACT, (_T.HTB, _T.BPF, _T.CLSACT)),
            (Means.HTB_U32, (_T.HTB, _T.U32)),
            *policers,
        ),
        receiving=_best(
            found,
            (Means.IFB, (_T.HTB, _T.REDIRECT, _T.BPF, _T.TCX)),
            (Means.IFB, (_T.HTB, _T.REDIRECT, _T.BPF, _T.CLSACT)),
        ),
        pods=_best(found, (Means.TBF, (_T.TBF,)), *policers),
        leaf=leaf.value if leaf else "",
        leaf_reason="" if leaf is _T.FQ_CODEL else _why(found, _T.FQ_CODEL),
        policing=_best(found, *policers),
    )


def _best(found: dict[Technique, Finding], *rungs: tuple[Means, tuple[Technique, ...]]) -> Choice:
    reasons: list[str] = []
    for means, needed in rungs:
        why = next(filter(None, (_why(found, technique) for technique in needed)), "")
        if not why:
            return Choice(means, tuple(reasons))
        reasons.append(f"not {means.value}: {why}")
    return Choice(Means.NONE, tuple(reasons))


def _why(found: dict[Technique, Finding], technique: Technique) -> str:
    """Why it does not work, "" where it does."""
    finding = found.get(technique)
    if finding is None:
        return f"{technique.value} was not tried"
    return "" if finding.works else f"{technique.value}: {finding.reason or 'does not work'}"
