"""Two programs of the keeper Placeholders behind one address: a change of leader evicts nobody."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator

import pytest

from lab import extender_process, placeholders
from lab.cluster import Cluster, reserve_ports
from lab.node.relay import pass_on
from lab.ports import LOOPBACK
from tests.cluster.test_placeholders import Rig, full_of_batch, pod

pytestmark = [pytest.mark.cluster, pytest.mark.full]


@contextlib.contextmanager
def service(port: int, behind: list[int]) -> Iterator[None]:
    """As a Service: connections go to the first of these ports where somebody listens."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            for one in behind:
                with contextlib.suppress(OSError):
                    there, to = await asyncio.open_connection(LOOPBACK, one)
                    with contextlib.closing(to):
                        await asyncio.gather(pass_on(reader, to), pass_on(there, writer))
                    return

    async def serve() -> None:
        async with await asyncio.start_server(connected, LOOPBACK, port):
            ready.set()
            await ended

    ready, loop = threading.Event(), asyncio.new_event_loop()
    ended = loop.create_future()
    thread = threading.Thread(target=loop.run_until_complete, args=[serve()])
    thread.start()
    try:
        assert ready.wait(10)
        yield
    finally:
        loop.call_soon_threadsafe(ended.set_result, None)
        thread.join()
        loop.close()


def test_owners_wait_for_the_next_leader_and_evict_nobody(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    port, first, second = reserve_ports(cluster.folder, 3)

    def webhook(own: int) -> dict[str, object]:
        hook = {"address": f"{LOOPBACK}:{own}", "url": f"https://{LOOPBACK}:{port}"}
        return {"namespace": placeholders.NAMESPACE, "webhook": hook}

    with service(port, [first, second]):
        rig = Rig(cluster, placeholders=webhook(first))
        standby = extender_process.start(
            cluster,
            config={"keeper": "Placeholders", "placeholders": webhook(second)},
            extra=["--cap-percent=100", "--identity=standby"],
            name="j10ce-standby",
        )
        standby.wait_ready()
        room = full_of_batch(rig, 10, 4, priorityClassName="high")
        rig.program.kill()
        rig.create(*(pod(f"checkout-{n}", "2", "checkout", priorityClassName="high") for n in range(10)))
        assert len(rig.bound("checkout")) == 0
        rig.wait(lambda: len(rig.bound("checkout")) == 10, "owners are bound once the standby leads", 120)
        assert rig.evicted() == 0
        assert len(rig.bound("batch")) == room
