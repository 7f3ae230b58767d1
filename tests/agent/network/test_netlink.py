from __future__ import annotations

from agent.network import dump, messages
from agent.network.netlink import _HEADER, DUMP, REQUEST, Netlink


def test_a_dump_that_was_given_up_half_read_is_no_reason_to_refuse_the_next() -> None:
    """The kernel says EBUSY until somebody has read the rest."""
    with Netlink() as netlink:
        whole = dump.devices(netlink)
        for _ in range(3):
            body = messages.link()
            request = _HEADER.pack(16 + len(body), messages.GET_LINK, REQUEST | DUMP, 77, 0) + body
            netlink._socket.send(request)  # and a failure before its answer is read
            assert dump.devices(netlink) == whole
