"""What `j10ce network status` makes of two looks at the kernel."""

from __future__ import annotations

from agent.network.counting import Counts
from agent.network.records import Counters, FoundClass, Rates
from agent.network.seen import Bounded, SeenNetwork, SeenPod
from agent.network.showing import Flow, Kernel, shown
from qos.cluster.network_state import LinkState
from qos.network.wanted import Direction

OWN = SeenPod("shop", "web", "L0", 0x10, True, 7, Bounded(8000, 8000), Bounded(0, 0, 16000), ("why",))
SHARED = SeenPod("shop", "job", "L2", 8, False, 8, Bounded(), Bounded())
SEEN = SeenNetwork(LinkState("eth0", 10**9, "Label"), "", 2, 0, (), None, None, (), (OWN, SHARED))
RATES = Rates(1000, 2000, 1, 1, 1, 0)


def kernel(before: Counts, after: Counts, *minors: int) -> Kernel:
    classes = tuple(FoundClass(2, 0x10CE0000 | minor, 0, 0, RATES, None) for minor in minors)
    return Kernel({2: "eth0", 7: "veth7"}, classes, before, after, 2.0)


def test_rates_and_drops_are_those_of_the_interval() -> None:
    before = Counts({2: {0x10: Counters(1000, 10, 3, 0, 0, 0)}}, {7: Counters(0, 0, 2**32 - 1, 0, 0, 0)})
    after = Counts({2: {0x10: Counters(3000, 12, 5, 0, 1, 99)}}, {7: Counters(500, 5, 1, 0, 0, 0)})
    own, shared = shown(SEEN, kernel(before, after, 0x10), shaping=True).pods
    assert (own.egress.place, own.egress.flow) == ("10ce:10", Flow(8000, 3000, 12, 5, 2, 99))
    assert (own.ingress.place, own.ingress.flow) == ("tbf at veth7", Flow(2000, 500, 5, 1, 2, 0))
    assert (shared.egress.place, shared.egress.flow, shared.ingress.flow) == ("", None, None)


def test_a_class_that_was_made_anew_counts_from_nothing() -> None:
    before = Counts({2: {0x10: Counters(9000, 10, 30, 0, 0, 0)}}, {})
    after = Counts({2: {0x10: Counters(1000, 12, 5, 0, 0, 0)}}, {})
    own, _ = shown(SEEN, kernel(before, after, 0x10), shaping=True).pods
    assert own.egress.flow == Flow(4000, 1000, 12, 5, 5, 0)


def test_what_is_policed_is_shown_where_there_is_no_class() -> None:
    key = 0x10, Direction.EGRESS
    before = Counts({}, {}, {key: Counters(1000, 10, 3, 3, 0, 0)})
    after = Counts({}, {}, {key: Counters(3000, 12, 5, 5, 0, 0)})
    own, shared = shown(SEEN, kernel(before, after), shaping=True).pods
    assert (own.egress.place, own.egress.flow) == ("policer 10ce:10", Flow(8000, 3000, 12, 5, 2, 0))
    assert (own.ingress.place, shared.egress.place) == ("", "")


def test_each_class_says_whose_it_is() -> None:
    counters = Counters(0, 0, 0, 0, 0, 0)
    minors = (1, 2, 5, 8, 9, 0x10, 0x11)
    counts = Counts({2: dict.fromkeys(minors, counters)}, {})
    [tree] = shown(SEEN, kernel(counts, counts, *minors), shaping=True).trees
    assert [one.of for one in tree.classes] == [
        "all", "L0", "the host", "L2, shared", "nobody", "shop/web", "a pod that no agent has told of",
    ]  # fmt: skip
    assert (tree.classes[0].rate, tree.classes[0].ceil) == (8000, 16000)
    [unknown] = shown(None, kernel(counts, counts, *minors), shaping=False).trees
    assert unknown.classes[5].of == "a pod that no agent has told of"
