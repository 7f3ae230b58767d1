"""The relay of a real node's connections, when it ends while much is under way."""

from __future__ import annotations

import contextlib
import gc
import socket
import threading
import warnings

from lab.node.systemd.node import relayed
from tests.waiting import until

ADDRESS = "127.0.0.2"


class Talker(threading.Thread):
    """Listens on the loopback, and sends its one client more than it takes; `stuck`: it takes no more."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.stuck = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    def run(self) -> None:
        with self._listener, self._listener.accept()[0] as client, contextlib.suppress(ConnectionError):
            client.settimeout(0.3)
            while True:
                try:
                    client.sendall(b"x" * (1 << 20))
                except TimeoutError:
                    self.stuck = True


def test_it_leaves_no_connection_open_whose_client_does_not_read() -> None:
    talker = Talker()
    talker.start()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        with relayed(ADDRESS, talker.port):
            client = socket.create_connection((ADDRESS, talker.port))
            until(lambda: talker.stuck, "all buffers are full", seconds=60)
        with client:
            gc.collect()
    talker.join()
    assert [str(one.message) for one in caught] == []
