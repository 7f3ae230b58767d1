"""Placeholders in a flood: pods bound where the benchmark wants them, which the keeper takes over as after a
restart; so each round has them on as many nodes as it compares, and none is made while pods are counted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import aiohttp

from adapters.kubernetes import placeholders, priorities
from benchmarks import clusters
from benchmarks.clusters import GI, Size
from lab.extender_process import ExtenderProcess
from lab.placeholders import NAMESPACE
from qos.cluster.objects import Demand, Selector
from qos.cluster.placeholders import form_of, priority_of

WEBHOOK: Final = "j10ce-hand-over"
STEADY_SECONDS: Final = 1.0
_SHOWN: Final = ("j10ce_leader", "j10ce_placeholders_bound", "j10ce_ledger_holds")
_HANDED: Final = 'j10ce_hand_overs_total{outcome="handed"}'
_WRITES: Final = "j10ce_placeholder_writes_total"


class StandingError(Exception):
    """The keeper does not find placeholders where it would have them."""


def classes(priority: int) -> dict[str, Any]:
    """The PriorityClass of placeholders of policies of this priority."""
    return priorities.placeholder_class(priority)


def standing(size: Size, slots: int, on: int, priority: int) -> Iterator[dict[str, Any]]:
    """One a slot of 1 CPU and 1 GiB, on the first `on` nodes by turns, of all policies by turns."""
    for number in range(slots):
        policy = number % size.policies
        demand = Demand(
            f"{clusters.namespace(policy)}/{clusters.app(policy)}",
            clusters.namespace(policy),
            Selector(()),
            {"cpu": 1_000, "memory": GI, "pods": 1},
            slots,
            priority=priority,
        )
        value = priority_of(demand)
        node = clusters.node_name(number % on)
        body = placeholders.body(
            demand,
            f"hold-{number}",
            node,
            namespace=NAMESPACE,
            form=form_of(demand, value),
            priority_class=priorities.of_placeholders(value),
            scheduler="default-scheduler",
        )
        body["spec"]["nodeName"] = node
        yield body


async def settle(keeper: ExtenderProcess, count: int, seconds: float) -> None:
    """Wait until it leads, and for STEADY_SECONDS has had so many and has written none. StandingError."""
    deadline = time.monotonic() + seconds
    since, shown = 0.0, dict[str, float]()
    while time.monotonic() < deadline:
        shown = await _metrics(keeper)
        if _sum(shown, _WRITES):
            raise StandingError(f"{keeper.name} replaces placeholders: see {keeper.log}")
        as_wanted = [shown.get(name) for name in _SHOWN] == [1, count, count]
        since = (since or time.monotonic()) if as_wanted else 0.0
        if since and time.monotonic() - since > STEADY_SECONDS:
            return
        await asyncio.sleep(0.2)
    found = {name: shown.get(name) for name in _SHOWN}
    raise StandingError(f"{keeper.name} has {found}, not {count} placeholders, after {seconds:g} s")


async def handed_over(keeper: ExtenderProcess, owners: int) -> None:
    """See that so many owners got the place of a placeholder: room elsewhere is had sooner. StandingError."""
    done = _sum(await _metrics(keeper), _HANDED)
    if done < owners:
        raise StandingError(f"{keeper.name} handed over to {done:g} of {owners} owners")


async def _metrics(keeper: ExtenderProcess) -> dict[str, float]:
    async with aiohttp.ClientSession() as session, session.get(f"{keeper.url}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    pairs = (line.rpartition(" ")[::2] for line in lines if line[:1] != "#")
    return {name: float(value) for name, value in pairs}


def _sum(shown: Mapping[str, float], name: str) -> float:
    return sum(value for key, value in shown.items() if key.startswith(name))
