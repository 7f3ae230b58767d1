"""The state on stdin: what is taken, what is refused, within which time."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hook import state
from kernel.refused import Refused
from tests.hook.own_time import OwnTime

GOOD = {"ociVersion": "1.0.2", "id": "c1", "pid": 42, "status": "created", "annotations": {"a": "b"}}


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    for file in (reader, writer):
        with contextlib.suppress(OSError):  # the test has closed it
            os.close(file)


def soon() -> float:
    return time.monotonic() + 60


def test_takes_what_runtimes_write() -> None:
    found = state.parse(json.dumps(GOOD).encode() + b"\n")
    assert (found.id, found.pid, found.annotations) == ("c1", 42, {"a": "b"})


@pytest.mark.parametrize("annotations", [None, {}], ids=["null", "empty"])
def test_takes_a_state_without_annotations(annotations: object) -> None:
    assert state.parse(json.dumps(GOOD | {"annotations": annotations}).encode()).annotations == {}
    without = {key: value for key, value in GOOD.items() if key != "annotations"}
    assert state.parse(json.dumps(without).encode()).annotations == {}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b"\x00\xff\xfe", "not JSON"),
        (b"{", "not JSON"),
        (b'{"id": "c1", "pid": 42', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"pid": ' + b"9" * 5000 + b"}", "not JSON|no usable id"),
        (b"[]", "not a JSON object"),
        (b"null", "not a JSON object"),
        (json.dumps(GOOD).encode() * 2, "more than one"),
        (json.dumps(GOOD | {"id": 7}).encode(), "no usable id"),
        (json.dumps(GOOD | {"id": "../x"}).encode(), "no usable id"),
        (json.dumps(GOOD | {"id": ""}).encode(), "no usable id"),
        (json.dumps(GOOD | {"id": ".."}).encode(), "no usable id"),
        (json.dumps(GOOD | {"id": "c" * 256}).encode(), "no usable id"),
        (json.dumps(GOOD | {"id": "c\n1"}).encode(), "no usable id"),
        (json.dumps(GOOD | {"pid": "42"}).encode(), "no pid"),
        (json.dumps(GOOD | {"pid": True}).encode(), "no pid"),
        (json.dumps(GOOD | {"pid": 4.2}).encode(), "no pid"),
        (b'{"id": "c1"}', "no pid"),
        (json.dumps(GOOD | {"annotations": []}).encode(), "not a map of text"),
        (json.dumps(GOOD | {"annotations": {"a": 1}}).encode(), "not a map of text"),
    ],
)
def test_refuses_what_is_no_state(data: bytes, why: str) -> None:
    with pytest.raises(Refused, match=why):
        state.parse(data)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    with contextlib.suppress(Refused):
        state.parse(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,  # larger ones take seconds to make, and say no more
)


@given(st.dictionaries(st.sampled_from(["id", "pid", "annotations", "status"]), JSON))
def test_no_document_raises_anything_else(document: dict[str, object]) -> None:
    try:
        found = state.parse(json.dumps(document).encode())
    except Refused:
        return
    assert type(found.pid) is int
    assert all(isinstance(value, str) for value in found.annotations.values())


@given(st.dictionaries(st.text(), st.text()))
def test_reads_text_as_json_does(annotations: dict[str, str]) -> None:
    document = GOOD | {"annotations": annotations}
    for escaped in (True, False):
        data = json.dumps(document, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
        try:
            data.decode()
        except UnicodeDecodeError:
            continue  # a lone surrogate, which no UTF-8 text has
        assert state.parse(data).annotations == json.loads(data)["annotations"]


def test_reads_to_the_end_in_any_pieces(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    data = json.dumps(GOOD | {"annotations": {"a": "b" * 200_000}}).encode()

    def write() -> None:
        for start in range(0, len(data), 5000):
            os.write(writer, data[start : start + 5000])
        os.close(writer)

    thread = threading.Thread(target=write)
    thread.start()
    assert state.read(reader, soon()) == data
    thread.join()


def test_a_pipe_that_stays_open_costs_the_budget_and_no_more(
    pipe: tuple[int, int], own_time: OwnTime
) -> None:
    reader, writer = pipe
    os.write(writer, b"{")
    begun = own_time.now
    with pytest.raises(Refused, match="no end within the budget"):
        state.read(reader, begun + 0.05)
    assert 0.05 <= own_time.now - begun <= 0.05 + state._LONGEST_PAUSE


def test_a_slow_writer_does_not_renew_the_budget(pipe: tuple[int, int], own_time: OwnTime) -> None:
    """There is always something more to read."""
    reader, writer = pipe
    own_time.costs = 0.005
    own_time.asked = lambda: os.write(writer, b" ")
    begun = own_time.now
    with pytest.raises(Refused, match="no end within the budget"):
        state.read(reader, begun + 0.1)
    assert own_time.now - begun < 0.12


def test_an_endless_writer_is_refused_by_size(own_time: OwnTime) -> None:
    own_time.costs = 0.001
    with Path("/dev/zero").open("rb") as zero, pytest.raises(Refused, match="longer than 2097152 bytes"):
        state.read(zero.fileno(), own_time.now + 0.2)


def test_the_cap_is_above_what_kubernetes_annotations_can_become() -> None:
    longest = 256 * 1024 * len("\\u0001")
    assert longest + 64 * 1024 < state.LARGEST


def test_a_closed_stdin_is_refused(pipe: tuple[int, int]) -> None:
    reader, _ = pipe
    os.close(reader)
    with pytest.raises(Refused, match="cannot be read: Bad file descriptor"):
        state.read(reader, soon())
