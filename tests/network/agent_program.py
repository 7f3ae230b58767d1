"""What keeps a node's network, as a process of its own, which can be killed and another release come after.

Run as `python -P -m tests.network.agent_program JSON` in the node's network namespace, by test_agents_change.
It prints a line of JSON after its first round, and makes rounds until it is ended.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.network import ingress
from agent.network.bpf import pins
from agent.network.ladder import Choice, Means, choose
from agent.network.netlink import Netlink
from agent.network.originals import Originals
from agent.network.probes import probe
from agent.network.shaper import Shaper
from agent.network.shaping import Shaping
from qos.bandwidth import Band, Bounds
from qos.network.bands import Configuration
from qos.network.wanted import Link, PodTraffic


async def main() -> None:
    """Rounds, as the agent makes them."""
    start: Mapping[str, Any] = json.loads(sys.argv[1])
    means = Means[start["means"]]
    choices = choose(probe())
    choices = replace(choices, sending=Choice(means))
    if start["policed"]:
        choices = replace(choices, policing=Choice(means))
    netlink, nic, speed = Netlink(), start["nic"], start["speed"]
    ifb = ingress.ifb_of(netlink, nic) if start["receiving"] else 0
    link = Link(nic, "eth0", speed, speed, ifb) if not start["policed"] else None
    traffic = tuple(
        PodTraffic(
            one["uid"],
            Band.L1,
            Bounds() if start["receiving"] else Bounds(0, one["limit"]),
            Bounds(one["limit"] // 4, one["limit"]) if start["receiving"] else Bounds(),
            tuple(bytes.fromhex(address) for address in one["addresses"]),
            interface=one["interface"],
        )
        for one in start["pods"]
    )

    async def pods() -> tuple[PodTraffic, ...]:
        return traffic

    shaping = Shaping(netlink, Originals(Path(start["run"])), choices, start["bpf_root"])
    shaper = Shaper(
        shaping,
        pods,
        lambda: link,
        lambda: Configuration(leaf=choices.leaf, policed=choices.policed),
    )
    running = asyncio.create_task(shaper.run())
    while shaper.last is None:
        await asyncio.sleep(0.01)
        assert not shaper.failure, shaper.failure
    last = shaper.last
    said = {
        "schema": pins.SCHEMA,
        "unkept": {uid: str(why) for uid, why in last.unkept.items()},
        "classes": {uid: one.minor for uid, one in last.wanted.standing.items()},
    }
    print(json.dumps(said), flush=True)  # noqa: T201
    await running


if __name__ == "__main__":
    asyncio.run(main())
