"""What the agent is told is checked before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.config import AgentConfig, ConfigError, address, checked


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("127.0.0.1:10262", ("127.0.0.1", 10262)),
        ("[::1]:0", ("::1", 0)),
        (":9", ("", 9)),
        ("localhost:80", ("localhost", 80)),
    ],
)
def test_addresses(text: str, found: tuple[str, int]) -> None:
    assert address(text) == found


@pytest.mark.parametrize("text", ["10262", "host:1", "127.0.0.1:", "127.0.0.1:70000", "127.0.0.1:-1", ""])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ConfigError, match="--address"):
        address(text)


def test_what_cannot_work(tmp_path: Path) -> None:
    assert checked(AgentConfig(standalone=tmp_path)).standalone == tmp_path
    wrong = {
        "--node": AgentConfig(),
        "not a folder": AgentConfig(standalone=tmp_path / "none"),
        "one of them": AgentConfig(standalone=tmp_path, kubeconfig=tmp_path / "k"),
        "only an API server says who may": AgentConfig(standalone=tmp_path, metrics_address=("", 1)),
        "not a file": AgentConfig(node="n", kubeconfig=tmp_path / "k"),
        "--check-seconds 0": AgentConfig(node="n", check_seconds=0),
    }
    for message, config in wrong.items():
        with pytest.raises(ConfigError, match=message):
            checked(config)
