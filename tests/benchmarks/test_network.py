"""`make bench-network` judges what a packet costs beyond one without a qdisc."""

from __future__ import annotations

from benchmarks.network import ALL, KINDS, NONE, NONE_OF_PODS, U32, packet_figures


def test_a_packet_is_compared_with_one_by_u32_both_beyond_what_it_costs_anyway() -> None:
    costs = {**dict.fromkeys(KINDS, 600.0), NONE: 500.0, NONE_OF_PODS: 550.0, ALL: 750.0, U32: 1550.0}
    figures = {one.name.partition(":")[0]: one for one in packet_figures(costs)}
    assert figures["a packet, 0 pods"].value == 100.0
    assert figures["a packet, 250 pods"].ratio == 0.2
    assert all(one.kept for one in figures.values())
    dear = {one.name.partition(":")[0]: one for one in packet_figures(costs | {ALL: 1500.0})}
    assert not dear["a packet, 250 pods"].kept
