"""The journal of what others want: through restarts, cuts at any byte, other versions and full disks."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.enforcement.originals import Originals, Record
from agent.enforcement.places import Place

FILE, POD = Place("/kubepods/podX/c", "cpu.shares"), Place("/kubepods/podX", "io.max 8:0")


def test_it_is_all_there_after_a_restart(tmp_path: Path) -> None:
    before = Originals(tmp_path)
    before.note(
        {FILE: Record("600", "204"), POD: Record("8:0 rbps=5", "8:0 rbps=max wbps=max riops=max wiops=max")}
    )
    before.note({Place("/x", "pids.max"): Record("5", None)})
    after = Originals(tmp_path)
    assert dict(after) == dict(before) == {FILE: "204", POD: "8:0 rbps=max wbps=max riops=max wiops=max"}
    assert after.record(Place("/x", "pids.max")) == Record("5", None)
    assert Place("/x", "pids.max") not in after
    assert (tmp_path / "originals").stat().st_mode & 0o777 == 0o600


def test_what_is_forgotten_stays_forgotten(tmp_path: Path) -> None:
    one = Originals(tmp_path)
    one.note({FILE: Record("600", "204"), POD: Record("a", "b"), Place("/x", "pids.max"): Record("5", "max")})
    one.forget([FILE, FILE])
    one.drop("/x")
    one.drop("/y")
    assert dict(Originals(tmp_path)) == {POD: "b"}
    assert Originals(tmp_path).paths() == (POD.path,)


def test_what_the_runtime_tells_of_others_counts_at_the_first_look_and_after(tmp_path: Path) -> None:
    one = Originals(tmp_path)
    one.seed(FILE.path, {FILE.key: "204"})
    assert one.record(FILE) == Record("", "204")
    assert len(one) == 0
    one.note({FILE: Record("600", "204")})
    one.seed(FILE.path, {FILE.key: "409"})
    assert Originals(tmp_path).record(FILE) == Record("600", "409")


def test_what_was_ours_before_the_last_line_is_known_until_something_is_noted(tmp_path: Path) -> None:
    before = Originals(tmp_path)
    before.note({FILE: Record("600", "204")})
    assert Originals(tmp_path).earlier(FILE) is None
    before.note({FILE: Record("700", "204")})
    assert before.earlier(FILE) is None
    after = Originals(tmp_path)
    assert after.earlier(FILE) == "600"
    after.note({FILE: Record("700", "204")})
    assert after.earlier(FILE) is None


def test_it_does_not_grow_without_bound(tmp_path: Path) -> None:
    one = Originals(tmp_path)
    for number in range(3000):
        one.note({Place(f"/pod{number}", "cpu.shares"): Record("600", "204")})
        one.drop(f"/pod{number}")
    assert (tmp_path / "originals").stat().st_size < 100_000
    one.note({FILE: Record("600", "204")})
    assert dict(Originals(tmp_path)) == {FILE: "204"}


RECORDS = {
    Place(f"/pod{number}", "cpu.shares"): Record(str(600 + number), str(number)) for number in range(5)
}


@given(cut=st.integers(0, 200))
def test_cut_anywhere_what_came_before_is_there(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    run = tmp_path_factory.mktemp("run")
    one = Originals(run)
    for place, record in RECORDS.items():
        one.note({place: record})
    file = run / "originals"
    whole = file.read_bytes()
    file.write_bytes(whole[:cut])
    after = Originals(run)
    complete = whole[:cut].count(b"\n") - 1
    known = dict(list(RECORDS.items())[: max(complete, 0)])
    assert {place: after.record(place) for place in RECORDS if after.record(place)} == known
    after.note({FILE: Record("1", "2")})
    again = Originals(run)
    assert dict(again) == {FILE: "2", **{place: record.original for place, record in known.items()}}


@pytest.mark.parametrize(
    "text", [b"", b"\xff\xfe", b"garbage\n", b"j10ce-originals\t0\n", b"j10ce-originals\tx\n"]
)
def test_a_file_that_is_none_is_set_aside_and_begun_anew(
    tmp_path: Path, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "originals"
    file.write_bytes(text)
    file.chmod(0o600)
    one = Originals(tmp_path)
    assert dict(one) == {}
    assert "cannot be used" in caplog.text
    assert (tmp_path / "originals.bad").read_bytes() == text
    one.note({FILE: Record("600", "204")})
    assert dict(Originals(tmp_path)) == {FILE: "204"}


@pytest.mark.parametrize("line", ["relative\tcpu.shares\t1\t2", "/a\tb\tc\td\te", "", "\t"])
def test_one_bad_line_costs_that_line(tmp_path: Path, line: str, caplog: pytest.LogCaptureFixture) -> None:
    Originals(tmp_path).note(RECORDS)
    with (tmp_path / "originals").open("a") as file:
        file.write(f"{line}\n/later\tcpu.shares\t1\t2\n")
    assert Originals(tmp_path)["/later", "cpu.shares"] == "2"
    assert len(Originals(tmp_path)) == len(RECORDS) + 1
    assert "damaged" in caplog.text


def test_a_newer_version_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "originals"
    file.write_text("j10ce-originals\t2\nwhatever they will have\n")
    file.chmod(0o600)
    one = Originals(tmp_path)
    assert one.newer
    assert "newer version" in caplog.text
    one.note({FILE: Record("600", "204")})
    one.forget([FILE])
    assert file.read_text() == "j10ce-originals\t2\nwhatever they will have\n"
    assert [path.name for path in tmp_path.iterdir()] == ["originals"]


@pytest.mark.parametrize("kind", ["link", "open to others", "folder", "fifo"])
def test_a_file_that_is_not_ours_alone(tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "originals"
    if kind == "link":
        file.symlink_to("/etc/passwd")
    elif kind == "folder":
        file.mkdir()
    elif kind == "fifo":
        os.mkfifo(file, 0o600)
    else:
        file.write_text("j10ce-originals\t1\n/x\tcpu.shares\t1\t2\n")
        file.chmod(0o622)
    assert dict(Originals(tmp_path)) == {}
    assert "cannot be used" in caplog.text


def test_a_full_disk_costs_no_value_and_is_made_good(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = Originals(tmp_path)
    one.note({FILE: Record("600", "204")})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "originals").stat().st_size + 5, limits[1]))
    try:
        one.note({POD: Record("a", "b")})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert one[POD] == "b"
    assert "not kept" in caplog.text
    one.note({Place("/x", "pids.max"): Record("5", "max")})
    assert dict(Originals(tmp_path)) == dict(one)
    assert len(one) == 3


def test_a_cgroup_whose_name_breaks_a_line_is_known_until_the_end(tmp_path: Path) -> None:
    one = Originals(tmp_path)
    odd = Place("/a\nb\tc", "cpu.shares")
    one.note({odd: Record("1", "2"), FILE: Record("600", "204")})
    assert one[odd] == "2"
    assert dict(Originals(tmp_path)) == {FILE: "204"}
