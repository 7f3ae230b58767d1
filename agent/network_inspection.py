"""Looks at the node's network for the doctor: each technique is tried in a network namespace of its own.

At the node's interfaces nothing is changed.
"""

from __future__ import annotations

from pathlib import Path

from adapters.atomic_file import Untrusted
from agent.network import dump, ladder, link, seen
from agent.network.bpf.pins import MOUNTED_AT, unusable_root
from agent.network.difference import occupied
from agent.network.ladder import Choices
from agent.network.leaving import remaining
from agent.network.netlink import Netlink
from agent.network.probes import probe
from agent.network.shaper import Round
from agent.network.shaping import Shaped
from agent.network.standing import Standing
from agent.network.told import Told, sources
from agent.network_doctor import NetworkFacts
from agent.nri.instance import is_held
from qos.network.bands import Configuration
from qos.network.wanted import Link, Wanted


def look(run: Path, told: Told, bpf_root: str = MOUNTED_AT) -> NetworkFacts:
    """The facts; told: of the link, as an agent here would be. Raises nothing."""
    choices = ladder.choose(probe())
    there, problem = _link(told)
    pins, last = unusable_root(bpf_root), _as_if_shaped(choices, there)
    tried = Standing(choices, there, problem, sources(told, {}), pins, last)
    shaping = _shaping(run)
    return NetworkFacts(shaping, _said(run), tried, () if shaping else _left(bpf_root))


def _link(told: Told) -> tuple[Link | None, str]:
    """And why it, or its speed, is not known."""
    try:
        with Netlink() as netlink:
            found = link.look(netlink, told)
    except OSError as error:
        return None, f"the kernel does not say which interfaces there are: {error}"
    return (found.link, found.why) if isinstance(found, link.Unknown) else (found, "")


def _as_if_shaped(choices: Choices, there: Link | None) -> Round:
    """A round in which nobody asked for anything."""
    configuration = Configuration(leaf=choices.leaf, policed=choices.policed)
    foreign = _foreign(there) if there is not None else {}
    return Round(Wanted(), Shaped(0, {}, foreign=foreign), 0.0, {}, there, configuration, {})


def _foreign(there: Link) -> dict[int, str]:
    try:
        with Netlink() as netlink:
            return occupied([there.index], dump.found(netlink, []))
    except OSError:
        return {}


def _shaping(run: Path) -> bool:
    try:
        return is_held(run / seen.LOCK)
    except OSError:
        return False


def _said(run: Path) -> seen.SeenNetwork | None:
    try:
        return seen.read(run)
    except (OSError, ValueError, Untrusted):
        return None


def _left(bpf_root: str) -> tuple[str, ...]:
    try:
        return tuple(remaining(bpf_root))
    except OSError:
        return ()
