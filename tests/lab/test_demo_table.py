"""The demonstration's table and what counts as the floor delivered."""

from __future__ import annotations

import io

from rich.console import Console

from lab.node.demo_pod import Delivered
from lab.node.demo_table import Row, show


def shown(*rows: Row) -> tuple[bool, str]:
    text = io.StringIO()
    return show(rows, Console(file=text, width=120)), text.getvalue()


def test_one_broken_promise_is_enough() -> None:
    kept = Row("floor", "cpu.shares 147", "cpu.shares 147", "812m", kept=True)
    broken = Row("drift [ms]", "", "", "repaired after 200 ms", kept=False)
    assert shown(kept)[0]
    assert "all 1 kept" in shown(kept)[1]
    verdict, text = shown(kept, broken)
    assert not verdict
    assert "1 of 2 BROKEN" in text
    assert "drift [ms]" in text


def test_what_is_not_judged_is_never_kept() -> None:
    kept = Row("floor", "cpu.shares 147", "cpu.shares 147", "812m", kept=True)
    verdict, text = shown(kept, Row("memory", "", "", "32 MB", kept=None))
    assert verdict
    assert "all 1 kept" in text
    assert "not judged" in text
    assert text.count("kept") == 2


def test_a_floor_is_a_part_of_what_the_node_had() -> None:
    assert Delivered(700, 2000, 2000).is_enough(700)
    assert not Delivered(699, 2000, 2000).is_enough(700)
    assert Delivered(350, 1000, 2000).is_enough(700)
    assert not Delivered(349, 1000, 2000).is_enough(700)
    assert str(Delivered(812, 1990, 2000)) == "812m"
    assert str(Delivered(350, 1000, 2000)) == "350m of 1000m that the node had"
