"""The configuration is checked at the edge, and errors name the file, the field and the value."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from adapters.configuration import ConfigError
from adapters.serving.addresses import is_loopback
from extender.commands import app
from extender.config import ExtenderConfig, load
from ledger.decisions import Mode


def written(folder: Path, text: str) -> Path:
    path = folder / "extender.yaml"
    path.write_text(text)
    return path


def test_everything_has_a_default(tmp_path):
    config = load(None, {})
    assert config.mode is Mode.GUARD
    assert config.verbs_address == "127.0.0.1:10260"
    assert config.address == "127.0.0.1:10261"
    assert config.lease == "kube-system/j10ce-extender"
    assert load(written(tmp_path, ""), {}) == config


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("mode: Guard", 3.0),
        ("{mode: Guard, warmupSeconds: 1}", 1.0),
        ("{mode: Guard, binds: false}", 10.0),
        ("mode: Strict", 0.0),
        ("{mode: Strict, binds: false}", 10.0),
        ("mode: Observe", 0.0),
    ],
)
def test_the_warm_up_is_as_long_as_pods_in_flight_can_harm(tmp_path, text, seconds):
    assert load(written(tmp_path, text), {}).warmup == seconds


def test_flags_override_the_file(tmp_path):
    path = written(tmp_path, "mode: Strict\ncapPercent: 20\nschedulerNames: [a, b]\n")
    config = load(path, {"mode": Mode.OBSERVE})
    assert config.mode is Mode.OBSERVE
    assert config.cap_percent == 20
    assert config.scheduler_names == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mode: Lax", ["mode", "Lax"]),
        ("capPercent: 0", ["capPercent", "0"]),
        ("capPercent: many", ["capPercent", "many"]),
        ("verbsAddress: nohost", ["verbsAddress", "nohost"]),
        ("verbsAddress: 0.0.0.0:10260", ["verbsAddress 0.0.0.0:10260 is not loopback", "tls"]),
        ("verbsAddress: example.com:10260", ["not loopback"]),
        ("nonsense: 1", ["nonsense"]),
        ("lease: one", ["lease", "one"]),
        ("schedulerNames: []", ["schedulerNames"]),
        ("bindDeadlineSeconds: -1", ["bindDeadlineSeconds", "-1"]),
        (
            "capPoolLabels: [zone, kubernetes.io/hostname]",
            ["capPoolLabels", "kubernetes.io/hostname", "maxSlotsPerNode"],
        ),
        ("- a", ["mapping"]),
        ("a: [", ["not YAML", "line"]),
        ("tls: {certFile: a}", ["tls.keyFile"]),
    ],
)
def test_errors_name_the_file_the_field_and_the_value(tmp_path, text, words):
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    for word in [str(path), *words]:
        assert word in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "none.yaml", {})


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("::", False),
        ("localhost.example.com", False),
    ],
)
def test_loopback(host, expected):
    assert is_loopback(host) is expected


def test_identity_outlives_a_restart_and_differs_between_ports():
    one = ExtenderConfig(verbs_address="127.0.0.1:1").named()
    assert one.identity == ExtenderConfig(verbs_address="127.0.0.1:1").named().identity
    assert one.identity != ExtenderConfig(verbs_address="127.0.0.1:2").named().identity
    assert ExtenderConfig(identity="me").named().identity == "me"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--verbs-address", "0.0.0.0:1"], "not loopback"),
        (["--mode", "lax"], "lax"),
        (["--tls-cert-file", "a"], "keyFile, clientCaFile missing"),
        (["--log-level", "loud"], "loud"),
        (["--kubeconfig", "/nonexistent/kubeconfig"], "kubeconfig: /nonexistent/kubeconfig is not a file"),
    ],
)
def test_bad_flags_end_the_program_with_a_message(arguments, words):
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code != 0
    assert words in result.output


def test_help_names_every_flag_of_the_contract():
    text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output
    for flag in (
        *("--config", "--kubeconfig", "--mode", "--verbs-address", "--address", "--identity", "--lease"),
        *("--cap-percent", "--no-bind", "--tls-cert-file", "--tls-key-file", "--client-ca-file"),
    ):
        assert flag in text
