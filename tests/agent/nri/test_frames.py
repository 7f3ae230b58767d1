"""Frames: whatever pieces bytes come in, whole messages come out; and what a Go runtime can read of ours."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.nri.frames import DATA, LONGEST, PLUGIN, REQUEST, RESPONSE, RUNTIME, Decoder, FrameError, encode

MESSAGES = st.lists(
    st.tuples(
        st.sampled_from((PLUGIN, RUNTIME)),
        st.integers(0, 2**32 - 1),
        st.sampled_from((REQUEST, RESPONSE, DATA)),
        st.integers(0, 12_000).map(lambda size: bytes(size % 251 for _ in range(1)) * size),
    ),
    max_size=6,
)


def outer_frames(data: bytes) -> list[tuple[int, bytes]]:
    """Parsed independently of the code under test."""
    found = []
    while data:
        connection, length = struct.unpack(">II", data[:8])
        found.append((connection, data[8 : 8 + length]))
        data = data[8 + length :]
    return found


@given(MESSAGES, st.data())
def test_messages_survive_any_cuts(messages: list[tuple[int, int, int, bytes]], data: st.DataObject) -> None:
    stream = b"".join(encode(*message) for message in messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    decoder = Decoder()
    found = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += decoder.feed(stream[start:end])
    assert [(one.connection, one.stream, one.type, one.body) for one in found] == messages


@given(MESSAGES, st.integers(1, 5000))
def test_outer_frames_may_end_anywhere(messages: list[tuple[int, int, int, bytes]], size: int) -> None:
    """The runtime's own cut: one ttrpc message over several frames, or two in one."""
    decoder = Decoder()
    inner: dict[int, bytes] = {PLUGIN: b"", RUNTIME: b""}
    for message in messages:
        for connection, payload in outer_frames(encode(*message)):
            inner[connection] += payload
    found = []
    for connection, payload in inner.items():
        for first in range(0, len(payload), size):
            part = payload[first : first + size]
            found += decoder.feed(struct.pack(">II", connection, len(part)) + part)
    wanted = sorted(messages, key=lambda message: message[0])
    assert [(one.connection, one.stream, one.type, one.body) for one in found] == wanted


@given(st.integers(0, 20_000))
def test_the_runtimes_reader_can_take_each_frame(size: int) -> None:
    """Go's bufio with 4096 bytes: each frame must fit what is asked for, or the connection is given up."""
    frames = [payload for _, payload in outer_frames(encode(PLUGIN, 1, RESPONSE, b"x" * size))]
    assert len(frames) <= 2
    assert len(frames[0]) == min(10 + size, 4096)
    buffered = 0
    left = 10 + size
    for payload in frames:
        asked = 4096 if left == 10 + size or left < 4096 else left  # past the header: all the rest, directly
        assert len(payload) <= asked
        buffered += len(payload)
        left -= len(payload)
    assert (buffered, left) == (10 + size, 0)


def test_the_longest_message_passes() -> None:
    body = b"y" * LONGEST
    (message,) = Decoder().feed(encode(RUNTIME, 7, REQUEST, body))
    assert message.body == body
    with pytest.raises(FrameError, match="at most 4194304"):
        encode(RUNTIME, 7, REQUEST, body + b"y")


def test_a_longer_one_is_skipped_and_the_next_is_read() -> None:
    decoder = Decoder()
    inner = struct.pack(">IIBB", LONGEST + 5, 9, REQUEST, 0) + b"z" * (LONGEST + 5)
    data = b""
    for first in range(0, len(inner), 1 << 20):
        part = inner[first : first + (1 << 20)]
        data += struct.pack(">II", PLUGIN, len(part)) + part
    long, after = decoder.feed(data + encode(PLUGIN, 11, REQUEST, b"after"))
    assert (long.stream, long.body) == (9, None)
    assert (after.stream, after.body) == (11, b"after")


def test_a_frame_beyond_the_protocol_is_an_error() -> None:
    with pytest.raises(FrameError, match="connection 1"):
        list(Decoder().feed(struct.pack(">II", PLUGIN, LONGEST + 11)))


def test_other_connections_are_passed_over() -> None:
    data = struct.pack(">II", 3, 5) + b"other" + encode(PLUGIN, 1, REQUEST, b"ours")
    (message,) = Decoder().feed(data)
    assert message.body == b"ours"
