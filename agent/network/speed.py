"""How fast an interface says that it is: ETHTOOL_GLINKSETTINGS of ioctl SIOCETHTOOL. Needs no capability."""

from __future__ import annotations

import errno
import fcntl
import struct
from array import array
from typing import Final

_SIOCETHTOOL: Final = 0x8946
_GLINKSETTINGS: Final = 0x4C
_REQUEST: Final = struct.Struct("=16sQ16x")
"""struct ifreq of linux/if.h, with the address of the data in the place of ifr_data."""
_SETTINGS: Final = struct.Struct("=II7xb32x")
"""struct ethtool_link_settings without its masks: command, speed, then the number of words of a mask."""
_MASKS: Final = 3
_MOST_WORDS: Final = 127
_UNKNOWN: Final = 0xFFFFFFFF
_SILENT: Final = (errno.EOPNOTSUPP, errno.EINVAL)
"""Of drivers that say nothing, and of such as say nothing while their interface is down."""


def speed(fileno: int, name: str) -> int | None:
    """Bytes a second of the interface of this name, in the network namespace of the socket.

    None where it does not say: no carrier, virtio, hardware that does not know. Its word is as good as its
    driver: a veth says 10 Gbit/s whatever it is. OSError: there is no such interface.
    """
    data = array("B", bytes(_SETTINGS.size + 4 * _MASKS * _MOST_WORDS))
    request = _REQUEST.pack(name.encode(), data.buffer_info()[0])
    words = 0
    for _ in range(2):  # the kernel answers the first with how long its masks are
        _SETTINGS.pack_into(data, 0, _GLINKSETTINGS, 0, words)
        try:
            fcntl.ioctl(fileno, _SIOCETHTOOL, request)
        except OSError as error:
            if error.errno in _SILENT:
                return None
            raise
        _, megabits, words = _SETTINGS.unpack_from(data)
        words = -words
    return None if megabits in (0, _UNKNOWN) else megabits * 1_000_000 // 8
