"""The process of a program that serves: flags that such programs share, logs, the API server, its end."""

from __future__ import annotations

import asyncio
import logging
import signal
from pathlib import Path
from typing import Annotated

import typer

from adapters import logs
from adapters.kubernetes.client import InProtobuf, KubernetesAPI

KubeconfigFlag = Annotated[
    Path | None, typer.Option(help="How to reach the API server. Default: as the pod's service account.")
]
ContextFlag = Annotated[str | None, typer.Option(help="The kubeconfig's context. Default: the current one.")]
LogLevelFlag = Annotated[str, typer.Option(help="debug, info, warning or error.")]


def set_up_logs(level: str) -> None:
    """key=value lines on stderr; uvicorn's own only from warnings on. typer.BadParameter."""
    try:
        logs.set_up(level)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--log-level") from None
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


def connect(
    kubeconfig: Path | None, context: str | None, in_protobuf: InProtobuf | None = None
) -> KubernetesAPI:
    """The API server: by kubeconfig where one is named, else by the pod's service account.

    Raises CredentialsError.
    """
    if kubeconfig is None:
        return KubernetesAPI.in_cluster(in_protobuf=in_protobuf)
    return KubernetesAPI.from_kubeconfig(kubeconfig, context, in_protobuf=in_protobuf)


def until_signalled() -> asyncio.Event:
    """Set at SIGTERM or SIGINT; to be called in a running loop."""
    stop = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    return stop
