"""Python from our .proto files. The compiler is a development tool: nothing installed needs it."""

from __future__ import annotations

import tempfile
from pathlib import Path

_ROOT = Path(__file__).parents[1]
FOLDERS = ("agent/nri", "adapters/kubernetes/protobuf")
"""Where a messages.proto is."""


class ProtobufError(Exception):
    """The messages cannot be generated; the message says what is missing or wrong."""


def messages(folder: str) -> dict[str, str]:
    """File name in the folder -> content, of what its messages.proto becomes. ProtobufError."""
    source = f"{folder}/messages.proto"
    try:
        from grpc_tools import protoc  # imported on use: a development tool
    except ImportError:
        raise ProtobufError(
            f"grpcio-tools is not installed, which compiles {source}: install the development extras"
            " (`make venv`, or `pip install -e '.[dev]'`)"
        ) from None
    with tempfile.TemporaryDirectory() as made:
        argv = ["protoc", f"-I{_ROOT}", f"--python_out={made}", f"--pyi_out={made}", source]
        if protoc.main(argv) != 0:
            raise ProtobufError(f"{source} cannot be compiled: see what protoc says above")
        written = sorted((Path(made) / folder).iterdir())
        return {file.name: file.read_text() for file in written}
