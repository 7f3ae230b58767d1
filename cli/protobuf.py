"""Python from our .proto files. The compiler is a development tool: nothing installed needs it."""

from __future__ import annotations

import tempfile
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_FOLDER = "agent/nri"
_SOURCE = f"{_FOLDER}/messages.proto"


class ProtobufError(Exception):
    """The messages cannot be generated; the message says what is missing or wrong."""


def messages() -> dict[str, str]:
    """File name in agent/nri -> content, of what messages.proto becomes. ProtobufError."""
    try:
        from grpc_tools import protoc  # imported on use: a development tool
    except ImportError:
        raise ProtobufError(
            f"grpcio-tools is not installed, which compiles {_SOURCE}: install the development extras"
            " (`make venv`, or `pip install -e '.[dev]'`)"
        ) from None
    with tempfile.TemporaryDirectory() as made:
        argv = ["protoc", f"-I{_ROOT}", f"--python_out={made}", f"--pyi_out={made}", _SOURCE]
        if protoc.main(argv) != 0:
            raise ProtobufError(f"{_SOURCE} cannot be compiled: see what protoc says above")
        folder = Path(made) / _FOLDER
        return {file.name: file.read_text() for file in sorted(folder.iterdir())}
