"""What of Koordinator is there."""

from __future__ import annotations

from typing import Any

from cli.koordinator import OUR_HOOKS, other_checks


class Cluster:
    """kubectl, as far as it is asked."""

    def objects(self, *_: str) -> list[dict[str, Any]]:
        def configuration(name: str, *resources: str) -> dict[str, Any]:
            hooks = [{"rules": [{"resources": [resource]}]} for resource in resources]
            return {"metadata": {"name": name}, "webhooks": hooks}

        return [
            configuration("koordinator", "nodes", "elasticquotas"),
            configuration("of-pods", "pods"),
            configuration("of-everything", "*"),
            configuration(OUR_HOOKS, "elasticquotas"),
            {"metadata": {"name": "empty"}},
        ]


def test_who_else_checks_quotas() -> None:
    assert other_checks(Cluster()) == ("koordinator",)  # type: ignore[arg-type]
