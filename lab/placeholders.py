"""The keeper Placeholders in a lab cluster: what is installed for it, and how its program is configured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any, Final

from lab import kwok, requests
from lab.admission import wait_for
from lab.cluster import Cluster, reserve_ports
from lab.ports import LOOPBACK
from qos.keys import RAISED_PRIORITY_LABEL

NAMESPACE: Final = "j10ce-placeholders"
"""The product's default."""
_RAISING: Final = "raising.yaml"
_FORGED: Final = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "j10ce-raising-probe",
        "namespace": "default",
        "labels": {RAISED_PRIORITY_LABEL: "true"},
    },
    "spec": {"containers": [{"name": "c", "image": "none"}], "automountServiceAccountToken": False},
}


def install(cluster: Cluster, seconds: float = 60) -> None:
    """Its namespace, and the admission by which owners are raised; wait until that is at work. LabError."""
    metadata = {"name": NAMESPACE}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(namespace))
    cluster.kubectl("apply", "--server-side", "--filename=-", stdin=raising(cluster))
    wait_for(cluster, _FORGED, "forged", f"{_RAISING}: owners are not raised", seconds)


def raising(cluster: Cluster) -> str:
    """The manifest of that admission, as the cluster serves it: our program is an administrator here."""
    text = (resources.files("manifests") / "hand-over" / _RAISING).read_text(encoding="utf-8")
    return requests.as_served(text, cluster).replace("'j10ce-extender']", f"'{kwok.ADMINISTRATOR}']")


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
