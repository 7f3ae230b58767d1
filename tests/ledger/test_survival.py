"""How many nodes may be lost: what the report says, against taking each set of them away."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from qos.cluster.objects import Pod
from tests.ledger.builders import demand, ledger, nodes


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 5),
    st.lists(st.integers(0, 4), max_size=6),
    st.integers(1, 6),
    st.integers(1, 3),
    st.integers(1, 2),
)
def test_as_many_nodes_may_be_lost_as_the_report_says(count, owners, asked, most, failures):
    spare = failures * most
    wanted = replace(
        demand("web", asked + spare, cpu=1), asked=asked, spare=spare, slots=asked, max_slots_per_node=most
    )
    made = ledger(*nodes(count, cpu=3), wanted)
    for number, place in enumerate(owners[:asked]):
        request = {"cpu": 1000, "pods": 1}
        made.set_pod(
            Pod(f"o{number}", "default", f"o{number}", request, {"app": "web"}, node_name=f"n{place % count}")
        )
    report = made.report()["default/web"]
    there = dict(report.holds)
    for place in (place % count for place in owners[:asked]):
        there[f"n{place}"] = there.get(f"n{place}", 0) + 1
    worst = 0
    while worst < len(there) and all(
        sum(slots for name, slots in there.items() if name not in lost) >= asked
        for lost in combinations(there, worst + 1)
    ):
        worst += 1
    assert report.survives == worst
    if not report.missing and all(slots <= most for slots in there.values()):
        assert report.survives >= failures
