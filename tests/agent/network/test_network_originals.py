"""What was at interfaces before ours outlives the agent, and nothing else is taken for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.network.originals import NAME, Originals
from agent.network.records import Device


def device(index: int, name: str = "") -> Device:
    return Device(index, name or f"eth{index}", "", up=True, peer=0)


DEVICES = {index: device(index) for index in (2, 3)}


def test_what_is_noted_is_known_to_the_next_agent(tmp_path: Path) -> None:
    first = Originals(tmp_path)
    first.note_roots([(device(2), "mq"), (device(3), "noqueue")])
    first.note_clsacts([device(2)])
    second = Originals(tmp_path)
    assert second.held(DEVICES) == {2, 3}
    assert second.clsacts(DEVICES) == {2}
    assert second.kind(device(2)) == "mq"
    assert second.kind(device(4)) == ""


def test_the_first_word_counts(tmp_path: Path) -> None:
    originals = Originals(tmp_path)
    originals.note_roots([(device(2), "mq")])
    originals.note_roots([(device(2), "pfifo")])
    assert Originals(tmp_path).kind(device(2)) == "mq"


def test_another_interface_with_the_same_number_or_name_is_not_meant(tmp_path: Path) -> None:
    originals = Originals(tmp_path)
    originals.note_roots([(device(2), "mq"), (device(3), "noqueue")])
    others = {2: device(2, "veth1"), 4: device(4, "eth3")}
    assert originals.held(others) == frozenset()
    originals.keep(others)
    assert Originals(tmp_path).held(DEVICES) == frozenset()


def test_what_is_forgotten_is_gone(tmp_path: Path) -> None:
    originals = Originals(tmp_path)
    originals.note_roots([(device(2), "mq"), (device(3), "noqueue")])
    originals.note_clsacts([device(2)])
    originals.forget([2])
    again = Originals(tmp_path)
    assert (again.held(DEVICES), again.clsacts(DEVICES)) == ({3}, frozenset())


@pytest.mark.parametrize(
    "content", [b"", b"another\n", b"\xff\xfe", b"j10ce-network-originals\t9\nroot\t2\teth2\tmq\n"]
)
def test_a_file_that_cannot_be_read_is_said_and_lost(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / NAME).write_bytes(content)
    (tmp_path / NAME).chmod(0o600)
    assert Originals(tmp_path).held(DEVICES) == frozenset()
    assert "cannot be used" in caplog.text


def test_a_damaged_line_is_left_out(tmp_path: Path) -> None:
    originals = Originals(tmp_path)
    originals.note_roots([(device(2), "mq")])
    file = tmp_path / NAME
    file.write_text(file.read_text() + "root\tx\teth3\tmq\nroot\t3\n")
    assert Originals(tmp_path).held(DEVICES) == {2}


def test_a_folder_that_takes_nothing_is_said_and_what_is_noted_is_known(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    originals = Originals(tmp_path / "none")
    originals.note_roots([(device(2), "mq")])
    assert originals.held(DEVICES) == {2}
    assert "not kept" in caplog.text


def test_what_could_not_be_written_is_written_in_the_next_round(tmp_path: Path) -> None:
    run = tmp_path / "run"
    originals = Originals(run)
    originals.note_clsacts([device(2)])  # there is no such folder
    run.mkdir()
    originals.keep(DEVICES)
    assert Originals(run).clsacts(DEVICES) == {2}
