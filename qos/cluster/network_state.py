"""What a node says of its network: its link, how it is shaped, why floors of it are not kept. Pure data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LABEL, OPTION, INTERFACE = "Label", "Option", "Interface"
SOURCES: Final = (LABEL, OPTION, INTERFACE)
"""Who says how fast the link is: a label of the Node, an option of the agent, or the interface itself."""
TO_LINK, FROM_LINK, TO_PODS, QUEUES = "ToLink", "FromLink", "ToPods", "Queues"
TRAFFIC: Final = (TO_LINK, FROM_LINK, TO_PODS, QUEUES)
"""What is shaped: what the link sends and receives, what each pod receives; and what waits in a class."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why something cannot be kept. reason: one word, for machines; message: what it is, and what to do."""

    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


@dataclass(frozen=True, slots=True)
class LinkState:
    """The node's link. Bits a second that pods may have together, headroom taken off; 0: not known.

    The sources: one of SOURCES each, "" where the direction is not known.
    """

    interface: str
    egress: int = 0
    egress_source: str = ""
    ingress: int = 0
    ingress_source: str = ""


@dataclass(frozen=True, slots=True)
class Technique:
    """traffic: one of TRAFFIC. technique: what is used for it; message: why nothing better is, "" it is the
    best.
    """

    traffic: str
    technique: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class NetworkState:
    """A node whose agent keeps floors of the network. link: None: not known. obstacle: why no floor can be
    kept here, None: they can. contradictions: what of its configuration the link cannot keep.
    """

    link: LinkState | None = None
    techniques: tuple[Technique, ...] = ()
    obstacle: Obstacle | None = None
    contradictions: tuple[str, ...] = ()
