"""Messages as Python: what is checked in is what protoc makes, and without protoc that is said."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cli import protobuf
from cli.protobuf import ProtobufError

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("folder", protobuf.FOLDERS)
def test_what_is_checked_in_is_what_the_proto_makes(folder: str) -> None:
    files = protobuf.messages(folder)
    assert sorted(files) == ["messages_pb2.py", "messages_pb2.pyi"]
    assert {name: (ROOT / folder / name).read_text() for name in files} == files


def test_without_the_development_extras_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc_tools", None)
    with pytest.raises(ProtobufError, match="grpcio-tools is not installed"):
        protobuf.messages("agent/nri")


def test_a_proto_that_cannot_be_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "agent" / "nri").mkdir(parents=True)
    (tmp_path / "agent" / "nri" / "messages.proto").write_text("message {")
    monkeypatch.setattr(protobuf, "_ROOT", tmp_path)
    with pytest.raises(ProtobufError, match="cannot be compiled"):
        protobuf.messages("agent/nri")
