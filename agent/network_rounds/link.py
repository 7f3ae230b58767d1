"""The link as a round takes it: with the IFB through which it receives, where that is shaped."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from agent.network import ingress
from agent.network.ladder import Choices, Means
from agent.network.netlink import Netlink, NetlinkError
from qos.network.wanted import Link

log = logging.getLogger(__name__)


class ShapedLink:
    """link: as it is known now. received: called with the IFB through which it receives from now on; None:
    what it receives is not shaped.
    """

    def __init__(self, link: Callable[[], Link | None], received: Callable[[int], None] | None) -> None:
        self._link, self._received = link, received
        self._problem = ""

    def now(self, netlink: Netlink, choices: Choices) -> Link | None:
        """With an IFB that is there, where one is needed: made where it is missing."""
        link = self._link()
        if link is None or self._received is None or choices.receiving.means is not Means.IFB:
            return link
        try:
            ifb = ingress.ifb_of(netlink, link.index)
        except NetlinkError as error:
            if str(error) != self._problem:
                self._problem = str(error)
                log.warning("what the link receives is not shaped why=%r", self._problem)
            return replace(link, ifb=0)
        self._problem = ""
        if link.ifb != ifb:
            self._received(ifb)
        return replace(link, ifb=ifb)
