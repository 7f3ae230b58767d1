"""The administrator's settings of the hook."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hook import config
from kernel.refused import Refused

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can own what the hook trusts")


def test_defaults() -> None:
    found = config.parse("")
    assert (found.closed, found.budget) == (False, 0.2)
    assert found.exempt == {"kube-system", "j10ce-system"}


def test_takes_every_setting() -> None:
    text = "# ours\nfail closed  # all of it\n\nbudget-ms 50\nexempt-namespace a\nexempt-namespace b\n"
    found = config.parse(text)
    assert (found.closed, found.budget) == (True, 0.05)
    assert found.exempt == {"kube-system", "j10ce-system", "a", "b"}


@pytest.mark.parametrize(
    "line",
    [
        *("fail", "fail close", "fail open closed", "exempt-namespace", "exempt-namespace a b", "nonsense"),
        *(
            "budget-ms 0",
            "budget-ms 1501",
            "budget-ms -1",
            "budget-ms 1_0",
            "budget-ms 9999999",
            "budget-ms ²",
        ),
    ],
)
def test_refuses_what_is_no_setting(line: str) -> None:
    with pytest.raises(Refused, match="is no setting of the hook"):
        config.parse(f"fail open\n{line}\n")


@given(st.text())
def test_no_text_raises_anything_else(text: str) -> None:
    try:
        found = config.parse(text)
    except Refused:
        return
    assert 0.001 <= found.budget <= 1.5


def test_no_file_means_the_defaults(tmp_path: Path) -> None:
    assert config.read(str(tmp_path / "none")).closed is False


@root_only
def test_reads_roots_file(tmp_path: Path) -> None:
    path = tmp_path / "hook.conf"
    path.write_text("fail closed\n")
    path.chmod(0o644)
    assert config.read(str(path)).closed is True


@root_only
@pytest.mark.parametrize("way", ["group", "world", "foreign", "link", "folder", "garbage", "huge", "fifo"])
def test_refuses_what_others_could_have_written(tmp_path: Path, way: str) -> None:
    path = tmp_path / "hook.conf"
    path.write_text("fail closed\n")
    path.chmod({"group": 0o620, "world": 0o602}.get(way, 0o600))
    if way == "foreign":
        os.chown(path, 65534, 65534)
    elif way in ("link", "folder", "fifo"):
        path.rename(tmp_path / "real")
        make = {
            "link": lambda: path.symlink_to("real"),
            "folder": path.mkdir,
            "fifo": lambda: os.mkfifo(path),
        }
        make[way]()
    elif way == "garbage":
        path.write_bytes(b"\xff\x00")
    elif way == "huge":
        path.write_text("#" * 70_000)
    with pytest.raises(Refused, match=r"hook\.conf"):
        config.read(str(path))
