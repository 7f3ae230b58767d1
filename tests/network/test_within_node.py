"""Traffic between pods of one node: what counts it, and what does not because it never reaches the link."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from agent.network import probes
from agent.network.ladder import Choice, Means, choose
from qos.bandwidth import Bounds
from tests.network.flows import flowing
from tests.network.node import Node
from tests.network.test_fallbacks import BOTH, POLICED
from tests.network.test_rates import M, judged
from tests.network.test_shaping import Shaper, shaping_node, traffic

SENT, RECEIVED = 20 * M, 30 * M


@contextmanager
def here(node: Node, run: Path, bpf_root: str, **means: Means) -> Iterator[Shaper]:
    choices = replace(
        choose(probes.probe()),
        **{name: Choice(one, ("this kernel lacks what is better",)) for name, one in means.items()},
    )
    with shaping_node(node, run, bpf_root, choices) as made:
        yield made


def test_a_limit_of_what_is_received_counts_it_and_one_of_what_the_link_sends_does_not(
    node: Node, tmp_path: Path, bpffs: str
) -> None:
    sender, receiver, other = node.pod(), node.pod(), node.pod()
    with here(node, tmp_path, bpffs) as shaper:
        done = shaper.settle(
            shaper.start(),
            traffic("one", sender, egress=Bounds(limit=SENT)),
            traffic("two", receiver, ingress=Bounds(limit=RECEIVED)),
        )
    assert (done.unshaped, done.unclassified) == ({}, "")
    judged(RECEIVED, sender.namespace, receiver.namespace, receiver.address, 1, "cubic")
    judged(RECEIVED, sender.namespace, receiver.namespace, receiver.address6, 8, "bbr")
    with flowing(sender.namespace, other.namespace, other.address) as flow:
        time.sleep(1)
        assert flow.rate(flow.started, flow.started + 1) > 2 * RECEIVED


@pytest.mark.parametrize("means", BOTH)
def test_where_pods_are_policed_at_their_veths_it_counts(
    node: Node, tmp_path: Path, bpffs: str, means: Means
) -> None:
    sender, receiver = node.pod(), node.pod()
    with here(node, tmp_path, bpffs, sending=means, policing=means) as shaper:
        done = shaper.settle(shaper.start(), traffic("one", sender, egress=Bounds(limit=SENT)))
    assert len(done.policed) == 1
    how = (sender.namespace, receiver.namespace, receiver.address, 8, "cubic", POLICED)
    judged(SENT, *how, queued=False)
