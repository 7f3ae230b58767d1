"""The extender to beat: it reads what it must, keeps nothing in mind and refuses nothing.

As a person would write it who minds speed: bare ASGI on uvicorn with uvloop and httptools, orjson, aiohttp.

    python -m benchmarks.accept_all KUBECONFIG PORT
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import uvicorn

from adapters.kubernetes import credentials
from adapters.kubernetes.credentials import Endpoint
from benchmarks.serving import read, respond


class AcceptAll:
    """filter passes every node; bind makes the Binding."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """POST /filter or /bind."""
        args = orjson.loads(await read(receive))
        answer: dict[str, Any] = {"Error": ""}
        if scope["path"] == "/filter":
            answer = {"Nodes": None, "NodeNames": args["NodeNames"], "FailedNodes": {}, "Error": ""}
        else:
            answer["Error"] = await self._bind(args)
        await respond(send, orjson.dumps(answer))

    async def _bind(self, args: dict[str, str]) -> str:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=self._endpoint.tls or True)
            )
        namespace, name = args["PodNamespace"], args["PodName"]
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"namespace": namespace, "name": name, "uid": args["PodUID"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": args["Node"]},
        }
        url = f"{self._endpoint.server}/api/v1/namespaces/{namespace}/pods/{name}/binding"
        async with self._session.post(url, json=binding) as answer:
            text = await answer.text()
            return text if answer.status >= 300 else ""


def main() -> None:
    """Serve until the process is ended."""
    kubeconfig, port = sys.argv[1:]
    app = AcceptAll(credentials.from_kubeconfig(Path(kubeconfig)))
    # The usual 5 s lost POSTs of Go's client, which keeps idle connections for 90 s.
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(port),
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_keep_alive=120,
    )


if __name__ == "__main__":
    main()
