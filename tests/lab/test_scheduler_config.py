"""Scheduler configurations of real clusters, made fit for one of several lab clusters."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import scheduler_config
from lab.scheduler_config import SchedulerConfigError

FOLDER = Path(__file__).parents[2] / "scheduler-config"


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_shipped_configuration_fits_a_lab(file: Path) -> None:
    shipped = scheduler_config.load(file)
    result = scheduler_config.for_lab(shipped, verbs_url="http://127.0.0.1:7")
    assert {entry["urlPrefix"] for entry in result["extenders"]} == {"http://127.0.0.1:7"}
    assert "kubeconfig" not in result["clientConnection"]
    assert result["leaderElection"] == {"leaderElect": False}
    ours = {"urlPrefix": "http://127.0.0.1:7", "httpTimeout": "30s"}
    for entry, before in zip(result["extenders"], shipped["extenders"], strict=True):
        assert entry == before | ours, "an answer that a busy machine delays is waited for"


@pytest.mark.parametrize(
    ("mode", "file"), [("guard", "default-scheduler"), ("strict", "strict"), ("observe", "observe")]
)
def test_the_built_in_configuration_is_the_shipped_one(mode: str, file: str) -> None:
    shipped = scheduler_config.load(FOLDER / f"{file}.yaml")
    assert scheduler_config.with_extender(mode)["extenders"] == shipped["extenders"]


def test_paths_stay_and_tls_goes_with_https() -> None:
    entry = {"urlPrefix": "https://j10ce:443/verbs", "enableHTTPS": True, "tlsConfig": {"caFile": "x"}}
    patient = {"httpTimeout": "30s"}
    document = scheduler_config.empty() | {"extenders": [entry]}
    plain = scheduler_config.for_lab(document, verbs_url="http://127.0.0.1:7")["extenders"]
    assert plain == [{"urlPrefix": "http://127.0.0.1:7/verbs"} | patient]
    secure = scheduler_config.for_lab(document, verbs_url="https://127.0.0.1:7")["extenders"]
    assert secure == [entry | {"urlPrefix": "https://127.0.0.1:7/verbs"} | patient]
    assert scheduler_config.for_lab(document)["extenders"] == [entry]


def test_rate_limits() -> None:
    document = scheduler_config.empty() | {"clientConnection": {"qps": 50, "kubeconfig": "x"}}
    assert scheduler_config.for_lab(document)["clientConnection"] == {"qps": 5000, "burst": 10000}
    assert scheduler_config.for_lab(document, qps_limits=True)["clientConnection"] == {"qps": 50}


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    document = scheduler_config.with_extender("guard")
    scheduler_config.write(document, tmp_path / "config.yaml")
    assert scheduler_config.load(tmp_path / "config.yaml") == document


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "not YAML"),
        ("- 1", "expected one object of kind KubeSchedulerConfiguration"),
        ("kind: KubeSchedulerConfiguration", "apiVersion is None, expected 'kubescheduler.config.k8s.io/v1'"),
        ("apiVersion: kubescheduler.config.k8s.io/v1\nkind: Pod", "kind is 'Pod'"),
    ],
)
def test_a_bad_file_is_named_with_its_fault(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(SchedulerConfigError, match=message) as caught:
        scheduler_config.load(file)
    assert str(caught.value).startswith(f"{file}: ")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SchedulerConfigError, match="No such file"):
        scheduler_config.load(tmp_path / "config.yaml")
