"""`j10ce losses`: which loss of nodes is survived, from policies' status and pods."""

from __future__ import annotations

import json
import stat
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from cli.app import app
from cli.losses import filled_on, losses_of, show

KEY = "shop/a"


def _pod(node: str, policy: str | None = KEY, phase: str = "Running") -> dict[str, Any]:
    annotations = {} if policy is None else {"j10ce.io/policy": policy}
    spec = {"nodeName": node} if node else {}
    return {"metadata": {"annotations": annotations}, "spec": spec, "status": {"phase": phase}}


def _policy(
    desired: int, filled: int, holds: dict[str, int], asked: int = 0, held: int = -1
) -> dict[str, Any]:
    placement = {"maxSlotsPerNode": 2, "surviveNodeFailures": asked} if asked else {}
    slots = {"desired": desired, "filled": filled, "held": held if held >= 0 else sum(holds.values())}
    status = {"slots": slots, "holds": [{"nodeName": n, "slots": count} for n, count in holds.items()]}
    return {
        "metadata": {"namespace": "shop", "name": "a"},
        "spec": {"placement": placement},
        "status": status,
    }


def test_only_pods_that_fill_a_slot_count() -> None:
    pods = [_pod("n1"), _pod("n1"), _pod("n2", ""), _pod("n2", None), _pod(""), _pod("n3", phase="Failed")]
    assert filled_on(pods) == {KEY: {"n1": 2}}


def test_a_node_is_survived_when_as_many_are_left_on_the_others() -> None:
    found = losses_of(_policy(6, 6, {"d": 2}, asked=1), {"a": 2, "b": 2, "c": 2})
    assert (found.asked, found.survives, found.harmful) == (1, 1, ())
    assert [(one.node, one.left) for one in found.losses] == [("a", 6), ("b", 6), ("c", 6), ("d", 6)]


def test_the_nodes_whose_loss_leaves_fewer_are_named_the_worst_first() -> None:
    found = losses_of(_policy(6, 3, {"a": 1, "b": 3}), {"a": 1, "c": 2})
    assert (found.asked, found.survives) == (0, 0)
    assert [(one.node, one.slots, one.left, one.short) for one in found.harmful] == [
        ("b", 3, 4, 2),
        ("a", 2, 5, 1),
        ("c", 2, 5, 1),
    ]


def test_slots_of_which_nobody_says_where_they_are_may_be_on_one_node() -> None:
    found = losses_of(_policy(2, 2, {"a": 1}, held=3), {"b": 1})
    assert (found.elsewhere, found.survives) == (3, 0), "a may have four of the five"
    assert losses_of(_policy(1, 2, {"a": 1}, held=3), {"b": 1}).survives == 1
    assert losses_of(_policy(1, 0, {}, held=3), {}).survives == 0


def test_a_policy_without_a_status_and_one_that_holds_nothing() -> None:
    found = losses_of({"metadata": {"namespace": "shop", "name": "a"}, "spec": {}}, {})
    assert (found.desired, found.survives, found.losses) == (0, 0, ())


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 5)), st.integers(0, 20))
def test_as_many_may_go_as_leave_enough_whichever_they_are(slots: dict[str, int], desired: int) -> None:
    found = losses_of(_policy(desired, 0, slots), {})
    worst = sorted(slots.values(), reverse=True)
    assert all(sum(worst[n:]) >= desired for n in range(1, found.survives + 1))
    assert found.survives == len(worst) or sum(worst[found.survives + 1 :]) < desired
    assert bool(found.harmful) == bool(worst and found.survives == 0)


def test_a_table_is_readable() -> None:
    out = StringIO()
    kept = losses_of(_policy(1, 1, {"b": 1}, asked=1), {"a": 1})
    harmed = losses_of(_policy(9, 0, {"a": 1, "b": 1, "c": 1, "d": 1}, held=5), {})
    show([kept, harmed], Console(file=out, width=120))
    said = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert said[1:] == [
        "shop/a 1 1 1 1 1 none",
        "shop/a 0 0 9 0 5 a (4 left), b (4 left), c (4 left) and 1 more",
        "shop/a: of 1 slot the node is not known here; all such are taken to be on one",
    ]


def test_json_for_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubectl = tmp_path / "kubectl"
    policy = {"kind": "List", "items": [_policy(2, 1, {"n1": 1})]}
    pods = {"kind": "List", "items": [_pod("n2")]}
    lines = [
        f"case \"$*\" in *{w}*) echo '{json.dumps(said)}';; esac"
        for w, said in (("minimal", policy), ("pods", pods))
    ]
    kubectl.write_text("#!/bin/sh\n" + "\n".join(lines) + "\n")
    kubectl.chmod(kubectl.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("J10CE_BIN", str(tmp_path))
    done = CliRunner().invoke(app, ["losses", "-o", "json"])
    assert done.exit_code == 0, done.output
    (one,) = json.loads(done.output)["policies"]
    assert (one["policy"], one["survives"]) == (KEY, 0)
    assert one["losses"][0] == {"node": "n1", "slots": 1, "left": 1, "short": 1}
