"""A container's state as the runtime hands it over on stdin: read within the budget, parsed without `json`.

Shape: https://github.com/opencontainers/runtime-spec/blob/main/runtime.md#state.
"""

import _json
import posix
import time

from kernel.membership import is_id
from kernel.refused import Refused

LARGEST = 2 * 1024 * 1024
"""Bytes. Kubernetes allows 256 KiB of annotations, which JSON's escapes make up to six times as long: a cap
that annotations could reach would let a pod shake off what its class says."""

_CHUNK = 65536
_SHORTEST_PAUSE = 0.0002
_LONGEST_PAUSE = 0.01


class State:
    """What of the state we use: the container's id, the pid of its first process, its annotations."""

    __slots__ = ("annotations", "id", "pid")

    def __init__(self, id: str, pid: int, annotations: "dict[str, str]") -> None:  # noqa: A002 - its name there
        self.id = id
        self.pid = pid
        self.annotations = annotations


class _Context:
    """What `_json`'s scanner asks of a decoder."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = str
    memo: "dict[str, str]" = {}  # noqa: RUF012 - the Python scanner's; unused by the C one


def read(stdin: int, deadline: float) -> bytes:
    """All of stdin, a file descriptor; Refused when it is too long, or has no end by the deadline.

    deadline: of time.monotonic(), seconds. There is no `select` here: an empty pipe is tried again after a
    short pause, from 0.2 to 10 ms. What is too long is read to its end all the same: a crun whose hook
    stops reading dies of SIGPIPE, and with it the container.
    """
    chunks: list[bytes] = []
    size = 0
    pause = _SHORTEST_PAUSE
    try:
        posix.set_blocking(stdin, False)
        while True:
            try:
                chunk = posix.read(stdin, _CHUNK)
            except BlockingIOError:
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                size += len(chunk)
                if not chunk:
                    break
                if size <= LARGEST:
                    chunks.append(chunk)
            if time.monotonic() > deadline:
                if size > LARGEST:
                    break
                raise Refused("the state on stdin had no end within the budget")
    except OSError as error:
        raise Refused(f"the state on stdin cannot be read: {error.strerror}") from None
    if size > LARGEST:
        raise Refused(f"the state on stdin is longer than {LARGEST} bytes")
    return b"".join(chunks)


def parse(data: bytes) -> State:
    """The state in a JSON document; Refused when it is none, or lacks what we use."""
    if not data.strip():
        raise Refused("the state on stdin is empty")
    document = _decode(data)
    if not isinstance(document, dict):
        raise Refused("the state on stdin is not a JSON object")
    identity = document.get("id")
    if not isinstance(identity, str) or not is_id(identity):
        raise Refused("the state on stdin has no usable id")
    pid = document.get("pid")
    if type(pid) is not int:
        raise Refused("the state on stdin has no pid: the hook belongs to the stage createRuntime")
    return State(identity, pid, _annotations(document.get("annotations")))


def _decode(data: bytes) -> object:
    scan = _json.make_scanner(_Context)  # type: ignore[arg-type]  # any object with these attributes will do
    try:
        text = data.decode().strip()
        found, end = scan(text, 0)
    except Exception:
        raise Refused("the state on stdin is not JSON") from None
    if end != len(text):
        raise Refused("the state on stdin is more than one JSON document")
    return found


def _annotations(found: object) -> "dict[str, str]":
    """Annotations are text by name; null and none are the same."""
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise Refused("the annotations on stdin are not a map of text")
    return found
