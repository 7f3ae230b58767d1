"""Running kubectl: arguments, output, errors; a script plays kubectl."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from cli.kubectl import Kubectl, KubectlError, as_list, find, identity


def script(folder: Path, body: str) -> Path:
    path = folder / "kubectl"
    path.write_text(f"#!{sys.executable} -SE\nimport json, sys\n{body}\n")
    path.chmod(0o755)
    return path


def test_finds_it_in_j10ce_bin_before_path(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        folder.mkdir()
        script(folder, "")
    environment = {"J10CE_BIN": str(first), "PATH": str(second)}
    assert find(environment, None, "").binary == first / "kubectl"
    assert find({"PATH": str(second)}, None, "").binary == second / "kubectl"


def test_says_what_to_do_without_it(tmp_path: Path) -> None:
    with pytest.raises(KubectlError, match="J10CE_BIN"):
        find({"PATH": str(tmp_path)}, None, "")


def test_passes_arguments_as_they_are(tmp_path: Path) -> None:
    kubectl = Kubectl(script(tmp_path, "print(json.dumps(sys.argv[1:]))"), Path("/k; rm -rf"), "a b")
    assert json.loads(kubectl.run("get", "$(pods)")) == [
        *("--kubeconfig", "/k; rm -rf"),
        *("--context", "a b"),
        *("get", "$(pods)"),
    ]


def test_an_error_says_what_kubectl_said(tmp_path: Path) -> None:
    kubectl = Kubectl(script(tmp_path, "sys.stderr.write('no such host\\n'); sys.exit(1)"))
    with pytest.raises(KubectlError, match=r"^kubectl get: no such host$"):
        kubectl.run("get", "pods")


def test_an_error_is_said_without_kubectl_s_log(tmp_path: Path) -> None:
    log = 'E1122 16:31:00.816718    8538 memcache.go:265] "Unhandled Error" err="refused"\n'
    said = f"{log}{log}The connection to the server was refused\n"
    kubectl = Kubectl(script(tmp_path, f"sys.stderr.write({said!r}); sys.exit(1)"))
    with pytest.raises(KubectlError, match=r"^kubectl get: The connection to the server was refused$"):
        kubectl.run("get", "pods")
    kubectl = Kubectl(script(tmp_path, f"sys.stderr.write({log!r}); sys.exit(1)"))
    with pytest.raises(KubectlError, match="memcache"):
        kubectl.run("get", "pods")


def test_a_conflict_is_told_in_short(tmp_path: Path) -> None:
    said = (
        'Apply failed with 1 conflict: conflict with "argo": .rules\nPlease review the fields above\n'
        'Apply failed with 2 conflicts: conflicts with "argo":\n- .spec.a\n- .spec.b\nPlease review\n'
    )
    kubectl = Kubectl(script(tmp_path, f"sys.stderr.write({said!r}); sys.exit(1)"))
    with pytest.raises(KubectlError, match="--force-conflicts") as caught:
        kubectl.run("apply")
    assert "- .spec.b" in str(caught.value)
    assert "Please" not in str(caught.value)


def test_a_binary_that_does_not_run(tmp_path: Path) -> None:
    with pytest.raises(KubectlError, match="does not run"):
        Kubectl(tmp_path / "kubectl").run("get")


def test_a_kubectl_that_hangs(tmp_path: Path) -> None:
    kubectl = Kubectl(script(tmp_path, "sys.stdin.read(); import threading; threading.Event().wait()"))
    with pytest.raises(KubectlError, match="no answer within 1 s"):
        kubectl.run("get", seconds=1)


@pytest.mark.parametrize(
    ("answer", "code", "allowed"), [("yes", 0, True), ("no", 1, False), ("no - some reason", 0, False)]
)
def test_can_i(tmp_path: Path, answer: str, code: int, allowed: bool) -> None:
    body = f"sys.stderr.write('Warning: x'); print({answer!r}); sys.exit({code})"
    assert Kubectl(script(tmp_path, body)).allowed("create", "pods") is allowed


def test_can_i_without_a_cluster(tmp_path: Path) -> None:
    kubectl = Kubectl(script(tmp_path, "sys.stderr.write('connection refused'); sys.exit(1)"))
    with pytest.raises(KubectlError, match="connection refused"):
        kubectl.allowed("create", "pods")


def test_objects_of_a_list_of_one_and_of_none(tmp_path: Path) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b"}}
    for document, expected in ((as_list([pod, pod]), [pod, pod]), (json.dumps(pod), [pod]), ("", [])):
        kubectl = Kubectl(script(tmp_path, f"print({document!r})"))
        assert kubectl.objects("get", "pods") == expected
    assert as_list([]) == ""
    assert identity(pod) == ("", "Pod", "b", "a")
    assert identity({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}})[0] == "apps"
