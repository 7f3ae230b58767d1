"""The node's link, looked at again and again: what is known of it now, and why nothing is."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from agent.network.link import Unknown, look
from agent.network.netlink import Netlink
from agent.network.told import NOTHING_TOLD, Told, ToldWrongError, over, sources
from qos.network.wanted import Direction, Link

log = logging.getLogger(__name__)


class Uplink:
    """link: as it was seen last, None: not known; of one whose speed is not known that is 0. problem: why
    either is not, or not any more, known; "".

    options: what the agent was started with. A link that does not answer for a moment stays what it was.
    `sources`: who says how fast it is. `ifb`: ifindex of the IFB that shapes what the link receives, 0 none;
    whoever makes it says so here.
    """

    def __init__(self, options: Told = NOTHING_TOLD, opened: Callable[[], Netlink] = Netlink) -> None:
        self._options, self._opened = options, opened
        self.link: Link | None = None
        self.ifb = 0
        self.sources: Mapping[Direction, str] = {}
        self.problem = "the link was not looked at yet"

    def see(self, labels: Mapping[str, str]) -> Link | Unknown:
        """Look now; labels: of the Node. Some milliseconds; logged when it is not as it was."""
        found = self._look(labels)
        if isinstance(found, Link):
            self.sources = sources(self._options, labels)
            self._tell(found, "")
        else:
            self._tell(self.link or found.link if found.passing else found.link, found.why)
        return found if self.link is None or isinstance(found, Unknown) else self.link

    def _look(self, labels: Mapping[str, str]) -> Link | Unknown:
        try:
            told = over(self._options, labels)
            with self._opened() as netlink:
                return look(netlink, told)
        except ToldWrongError as error:
            return Unknown(f"label {error}", passing=True)
        except OSError as error:
            return Unknown(f"the kernel does not say which interfaces there are: {error}", passing=True)

    def _tell(self, link: Link | None, problem: str) -> None:
        if link is not None:
            link = replace(link, ifb=self.ifb)
        if link is not None and link != self.link:
            log.info(
                "link interface=%s egress_bytes_per_second=%d ingress_bytes_per_second=%d",
                link.name, link.egress, link.ingress,
            )  # fmt: skip
        if problem and problem != self.problem:
            log.warning("link unknown why=%r", problem)
        self.link, self.problem = link, problem
