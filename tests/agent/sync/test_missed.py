"""Markers of the hook: what they tell, and when they go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.sync import missed as missed_module
from agent.sync.missed import Missed, MissedStart
from hook import markers
from hook.config import Config
from hook.decision import Subject, identify, marker, marker_name
from hook.state import State

UID = "0f6a4b7e-3a4b-4e43-9d2c-3a1f5be0f001"
CGROUP = f"/kubepods/burstable/pod{UID}/c0ffee"


def subject(name: str = "web") -> Subject:
    prefix = "io.kubernetes.cri."
    said = {
        f"{prefix}container-name": name,
        f"{prefix}sandbox-uid": UID,
        f"{prefix}container-type": "container",
    }
    return identify(State("c0ffee", 1, said), CGROUP, Config())


def leave(run: Path, name: str = "web", container_id: str = "c0ffee", reason: str = "no such file") -> str:
    """As the hook does."""
    who = subject(name)
    assert markers.leave(str(run), marker_name(who, container_id), marker(who, container_id, reason)) == ""
    return marker_name(who, container_id)


def test_what_the_hook_left_is_read_until_it_is_settled(tmp_path: Path) -> None:
    missed = Missed(tmp_path)
    assert list(missed.read()) == []
    name = leave(tmp_path)
    leave(tmp_path, "other", reason="expired\t5 s ago")
    found = list(missed.read())
    assert MissedStart(name, "c0ffee", UID, "web", "no such file") in found
    assert sorted(one.container for one in found) == ["other", "web"]
    missed.settled(next(one for one in found if one.container == "web"))
    assert [one.container for one in missed.read()] == ["other"]


def test_a_marker_that_was_left_anew_stays(tmp_path: Path) -> None:
    missed = Missed(tmp_path)
    leave(tmp_path, container_id="aaa")
    (first,) = missed.read()
    leave(tmp_path, container_id="bbb")
    missed.settled(first)
    (second,) = missed.read()
    assert second.container_id == "bbb"
    missed.settled(second)
    missed.settled(second)
    assert list(missed.read()) == []


@pytest.mark.parametrize(
    "content",
    [b"", b"id\tc0ffee\n", b"id\t../x\npod\t\ncontainer\t\nreason\t\n", b"\xff" * 10, b"x" * 5000],
)
def test_what_is_no_marker_is_removed(tmp_path: Path, content: bytes, caplog: Any) -> None:
    name = leave(tmp_path)
    (tmp_path / "missed" / "bad").write_bytes(content)
    (tmp_path / "missed" / "bad").chmod(0o600)
    assert [one.marker for one in Missed(tmp_path).read()] == [name]
    assert "marker unread" in caplog.text
    assert [entry.name for entry in (tmp_path / "missed").iterdir()] == [name]


def test_as_many_as_the_hook_leaves() -> None:
    assert missed_module._MOST == markers.MOST
