"""Makes a node's network as it is wanted: qdiscs, classes, and who goes to which of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Final, NamedTuple

from agent.network import applying, classifying, dump, ingress, sources
from agent.network.bpf.pins import MOUNTED_AT
from agent.network.bpf.system import BpfError
from agent.network.classifier import Classifier, Ports, Told
from agent.network.contested import NOTHING_GIVEN_UP, GivenUp
from agent.network.difference import Difference, Operation, Root, Verb, difference, occupied
from agent.network.ladder import POLICERS, Choices, Means
from agent.network.netlink import Netlink, NetlinkError
from agent.network.originals import Originals
from agent.network.records import Found, is_ours, roots
from qos.network.recovered import NOTHING_LEFT, Left
from qos.network.wanted import Direction, Policer, Wanted

_TREES: Final = frozenset({Means.HTB_TCX, Means.HTB_CLSACT, Means.HTB_U32})
_OUTRUN: Final = "filters of another come before ours there, and this kernel has no TCX"

log = logging.getLogger(__name__)


class Shaped(NamedTuple):
    """What one round came to. changes: how many. unshaped: interface -> why it is not as wanted.

    unclassified: why packets find no class of their own, "" where they do. foreign: interface -> whose qdisc
    is there in the place of ours, of NICs also where nothing is wanted. policed: the policers that are in
    use; they need no tree. unpoliced: interface -> why none of its policers is. made: interfaces at which
    qdiscs or classes were made, changed or taken away. hung_again: those at which filters or programs that
    hung there after the last round were missing, or another's beside them.
    """

    changes: int
    unshaped: Mapping[int, str]
    unclassified: str = ""
    foreign: Mapping[int, str] = MappingProxyType({})
    policed: frozenset[Policer] = frozenset()
    made: frozenset[int] = frozenset()
    unpoliced: Mapping[int, str] = MappingProxyType({})
    hung_again: frozenset[int] = frozenset()


class Shaping:
    """For one thread at a time. netlink: of the node's own network namespace. choices: of this kernel.

    Its end changes nothing: what is in the kernel goes on to work.
    """

    def __init__(
        self, netlink: Netlink, originals: Originals, choices: Choices, bpf_root: str = MOUNTED_AT
    ) -> None:
        self._netlink, self._originals, self._choices = netlink, originals, choices
        self._by_u32 = choices.sending.means is Means.HTB_U32
        self._classifier = Classifier(netlink, originals, tcx=choices.tcx, bpf_root=bpf_root)
        self._sources: Mapping[bytes, int] = {}
        self._redirected: frozenset[int] = frozenset()
        self._left_alone: frozenset[int] = frozenset()
        """What was made in the last round: u32 filters, NICs led through IFBs; and whose filters were not."""

    def settle(
        self, wanted: Wanted, ports: Ports, given_up: GivenUp = NOTHING_GIVEN_UP, *, hasty: bool = False
    ) -> Shaped:
        """One round: look, and do what is missing. Raises NetlinkError where nothing can be read.

        given_up: what is left to others: ours goes, and what they put there is theirs. Where filters are, a
        tree goes, too: without them all that it sends would be the host's. hasty: what hung somewhere after
        the last round is not looked for.
        """
        trees = frozenset(tree.interface for tree in wanted.trees)
        found = dump.found(self._netlink, [tree.interface for tree in wanted.trees])
        self._originals.keep(found.devices)
        gone = given_up.qdiscs | given_up.filters & trees
        self._originals.forget_roots(gone)
        contested = {one: _given_up(found, one) for one in gone & found.devices.keys()}
        unable = self._unable(wanted) | contested
        held = self._originals.held(found.devices)
        foreign = (
            occupied(ports.nics.union(bucket.interface for bucket in wanted.buckets), found, held) | contested
        )
        needed = difference(
            tuple(tree for tree in wanted.trees if tree.interface not in unable),
            tuple(bucket for bucket in wanted.buckets if bucket.interface not in unable),
            found,
            held,
        )
        self._note(needed.operations, found)
        by_address = wanted.by_address if self._by_u32 else {}
        by_u32 = [
            sources.changes(tree.interface, by_address, found, self._sources)
            for tree in wanted.trees
            if tree.interface in ports.nics
        ]
        going = self._netlink.apply([request for one in by_u32 for request in one.before])
        failures = applying.apply(self._netlink, needed.operations)
        self._originals.forget_roots(_taken_away(needed.operations))
        unshaped = _unshaped(needed, failures) | unable
        made = {one.interface for one in needed.operations} - {one.operation.interface for one in failures}
        changes = len(going) + len(needed.operations) - len(failures)
        nics = trees & ports.nics - unshaped.keys()
        ifbs = {nic: ifb for nic, ifb in ports.ifbs.items() if ifb in trees - unshaped.keys()}
        here = Ports(nics, ports.pods & found.devices.keys() - given_up.filters, ifbs)
        policers = _in_use(wanted, nics, found)
        unpoliced = {one.interface: _given_up(found, one.interface) for one in policers
                     if one.interface in given_up.filters}  # fmt: skip
        policers = tuple(one for one in policers if one.interface not in unpoliced)
        try:
            changes += self._by_filters(by_u32) if self._by_u32 and nics else 0
            told = self._tell(wanted, here, found, policers, hasty=hasty)
            redirected = ingress.settle(
                self._netlink, self._originals, found.devices.values(), ifbs, set(ports.ifbs.values())
            )
        except (BpfError, classifying.Occupied, NetlinkError, ValueError) as error:
            return Shaped(changes, unshaped, str(error), foreign, made=frozenset(made))
        undone = {one.interface for one in by_u32 if one.undone and one.interface not in made} & nics
        undone |= {ifbs[nic] for nic in redirected.made & self._redirected} | told.hung_again
        # What was left to others is tried once more: undone again, it is left for longer.
        undone |= self._left_alone & found.devices.keys() - given_up.filters
        self._redirected, self._left_alone = frozenset(ifbs), given_up.filters
        self._sources = by_address if nics else {}
        unpoliced |= dict.fromkeys(told.outrun, _OUTRUN)
        policed = frozenset(one for one in policers if one.interface not in unpoliced)
        changes += told.changes + redirected.changes
        return Shaped(changes, unshaped, "", foreign, policed, frozenset(made), unpoliced, frozenset(undone))

    def _by_filters(self, changes: Iterable[sources.Changes]) -> int:
        """After the classes are there. Raises NetlinkError."""
        requests = [request for one in changes for request in one.after]
        for refused in self._netlink.apply(requests):
            if refused is not None:
                raise refused
        return len(requests)

    def _tell(
        self, wanted: Wanted, ports: Ports, found: Found, policers: Sequence[Policer], *, hasty: bool
    ) -> Told:
        if self._by_u32:
            ports = Ports(frozenset(), ports.pods)
            if not policers and not self._choices.policed:  # so no program was ever loaded
                return Told(0)
        return self._classifier.settle(wanted, ports, found, policers, hasty=hasty)

    def left(self) -> Left:
        """What an agent before this one left here. Raises NetlinkError."""
        rates = {
            tree.interface: {
                one.class_id & 0xFFFF: one.rates.rate for one in dump.classes(self._netlink, tree.interface)
            }
            for tree in dump.qdiscs(self._netlink)
            if is_ours(tree) and tree.kind == "htb"
        }
        if not rates:
            return NOTHING_LEFT
        try:
            return Left(*self._classifier.left(), rates)
        except (BpfError, ValueError) as error:
            log.warning("classes of an earlier agent are not known why=%r", str(error))
            return Left({}, {}, rates)

    def close(self) -> None:
        """Descriptors alone."""
        self._classifier.close()
        self._netlink.close()

    def _note(self, operations: Iterable[Operation], found: Found) -> None:
        """Before ours takes their place: what was there."""
        there = roots(found)
        self._originals.note_roots(
            (found.devices[one.interface], there[one.interface].kind if one.interface in there else "")
            for one in operations
            if isinstance(one, Root) and one.verb in (Verb.ADD, Verb.REPLACE)
        )

    def _unable(self, wanted: Wanted) -> dict[int, str]:
        """Interfaces at which this kernel does nothing of what is wanted."""
        why = unusable(self._choices)
        unable = {tree.interface: why.trees for tree in wanted.trees if why.trees}
        return unable | {bucket.interface: why.buckets for bucket in wanted.buckets if why.buckets}


class Unusable(NamedTuple):
    """Why trees, and buckets, cannot be made on this kernel; "" where they can."""

    trees: str
    buckets: str


def unusable(choices: Choices) -> Unusable:
    """What of the choices is not used. Pure."""
    sending, pods = choices.sending, choices.pods
    return Unusable(
        "" if sending.means in _TREES else "; ".join(sending.reasons),
        "" if pods.means in POLICERS | {Means.TBF} else "; ".join(pods.reasons),
    )


def _given_up(found: Found, interface: int) -> str:
    return f"what is put at {found.devices[interface].name} is undone again and again by another"


def _taken_away(operations: Iterable[Operation]) -> set[int]:
    """Interfaces that lose our qdisc and get no other one of ours."""
    last = {one.interface: one for one in operations if isinstance(one, Root)}
    return {interface for interface, one in last.items() if one.verb is Verb.DELETE}


def _in_use(wanted: Wanted, shaped: AbstractSet[int], found: Found) -> tuple[Policer, ...]:
    """What pods receive is policed always, what they send where no NIC has its tree."""
    return tuple(
        one
        for one in wanted.policers
        if one.interface in found.devices and not (shaped and one.direction is Direction.EGRESS)
    )


def _unshaped(needed: Difference, failures: Iterable[applying.Failure]) -> dict[int, str]:
    """The first reason of each interface."""
    found: dict[int, str] = {}
    for conflict in needed.conflicts:
        found.setdefault(conflict.interface, conflict.message)
    for failure in failures:
        found.setdefault(failure.operation.interface, failure.message)
    return found
