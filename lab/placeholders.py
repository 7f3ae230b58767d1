"""The keeper Placeholders in a lab cluster: what is installed for it, and how its program is configured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from lab.cluster import Cluster, reserve_ports
from lab.ports import LOOPBACK

NAMESPACE: Final = "j10ce-placeholders"
"""The product's default."""


def install(cluster: Cluster) -> None:
    """Its namespace."""
    metadata = {"name": NAMESPACE}
    cluster.kubectl(
        "create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    )


def config(cluster: Cluster) -> dict[str, Any]:
    """What the configuration file of the program says, with a port of its own for the webhook."""
    (port,) = reserve_ports(cluster.folder, 1)
    address = f"{LOOPBACK}:{port}"
    webhook = {"address": address, "url": f"https://{address}"}
    return {"keeper": "Placeholders", "placeholders": {"namespace": NAMESPACE, "webhook": webhook}}


def of_standby(config: Mapping[str, Any]) -> dict[str, Any]:
    """The same for a second program: the webhook's address is the first one's."""
    own = {key: value for key, value in config.get("placeholders", {}).items() if key != "webhook"}
    return {**config, **({"placeholders": own} if own else {})}
