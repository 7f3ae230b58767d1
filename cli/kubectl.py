"""Runs the user's kubectl: argument lists in, decoded JSON or a clear error out.

kubectl has the user's credential plugins, proxies and contexts, server-side apply and kustomize.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode

from ruamel.yaml import YAML

Object: TypeAlias = dict[str, Any]

FIELD_MANAGER: Final = "j10ce"
"""Under this name server-side apply records which fields are ours."""
_SECONDS: Final = 120
_PAGE: Final = 1000
_LOGGED: Final = re.compile(r"[IWE]\d{4} \d\d:\d\d:\d\d")
"""How a line of Kubernetes' logs begins: each try has one, and only the last line is for users."""


class KubectlError(Exception):
    """kubectl is missing or failed; the message is what it said, and what to do."""

    def __init__(self, message: str, *, stdout: str = "") -> None:
        super().__init__(message)
        self.stdout = stdout


@dataclass(frozen=True, slots=True)
class Kubectl:
    """A kubectl binary and the cluster it talks to; both empty: its own defaults."""

    binary: Path
    kubeconfig: Path | None = None
    context: str = ""

    def run(self, *arguments: str, stdin: str = "", seconds: int = _SECONDS) -> str:
        """Standard output; KubectlError with what it said on standard error when it fails."""
        where = ["--kubeconfig", str(self.kubeconfig)] if self.kubeconfig else []
        where += ["--context", self.context] if self.context else []
        try:
            done = subprocess.run(
                [str(self.binary), *where, *arguments],
                input=stdin,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise KubectlError(f"kubectl {arguments[0]}: no answer within {seconds} s") from error
        except OSError as error:
            raise KubectlError(f"{self.binary} does not run: {error}") from error
        if done.returncode:
            said = _said(done.stderr.strip() or done.stdout.strip())
            raise KubectlError(f"kubectl {arguments[0]}: {said}", stdout=done.stdout)
        return done.stdout

    def objects(self, *arguments: str, stdin: str = "") -> list[Object]:
        """The objects that `kubectl ARGUMENTS -o json` prints, one or a list; none when it prints nothing."""
        text = self.run(*arguments, "-o", "json", stdin=stdin)
        return _items(json.loads(text)) if text.strip() else []

    def paged(self, path: str, field_selector: str) -> Iterator[Object]:
        """The objects that a path of the API lists, in pages: kubectl's own lists hold all at once."""
        options = {"limit": str(_PAGE), "fieldSelector": field_selector}
        while True:
            page = json.loads(self.run("get", "--raw", f"{path}?{urlencode(options)}"))
            yield from page["items"]
            options["continue"] = page["metadata"].get("continue", "")
            if not options["continue"]:
                return

    def kustomize(self, folder: Path) -> list[Object]:
        """The objects a kustomization makes."""
        documents = YAML(typ="safe", pure=True).load_all(StringIO(self.run("kustomize", str(folder))))
        return [document for document in documents if document]

    def apply(self, objects: Iterable[Object], *, dry_run: bool, force_conflicts: bool) -> list[Object]:
        """Apply by server-side apply; the objects as they are, or would be, afterwards."""
        options = ["--server-side", "--field-manager", FIELD_MANAGER]
        options += ["--dry-run=server"] if dry_run else []
        options += ["--force-conflicts"] if force_conflicts else []
        document = as_list(objects)
        return self.objects("apply", *options, "-f", "-", stdin=document) if document else []

    def existing(self, objects: Iterable[Object]) -> list[Object]:
        """The objects that exist, as they are in the cluster."""
        document = as_list(objects)
        return self.objects("get", "--ignore-not-found", "-f", "-", stdin=document) if document else []

    def existing_named(self, resource: str, names: Iterable[str], *scope: str) -> list[str]:
        """The names that exist."""
        found = self.run("get", resource, *scope, "--ignore-not-found", "-o", "name", *names)
        return [line.rpartition("/")[2] for line in found.splitlines()]

    def allowed(self, verb: str, resource: str, *, namespace: str = "") -> bool:
        """Whether the user may do that; an empty namespace means in all of them."""
        scope = ["--namespace", namespace] if namespace else ["--all-namespaces"]
        try:
            return self.run("auth", "can-i", verb, resource, *scope).strip() == "yes"
        except KubectlError as error:
            if error.stdout.strip() == "no":
                return False
            raise


def find(environment: Mapping[str, str], kubeconfig: Path | None, context: str) -> Kubectl:
    """The kubectl in J10CE_BIN, else on PATH."""
    folders = [environment.get("J10CE_BIN", ""), environment.get("PATH", os.defpath)]
    binary = shutil.which("kubectl", path=os.pathsep.join(folder for folder in folders if folder))
    if binary is None:
        raise KubectlError(
            "kubectl is neither in J10CE_BIN nor on PATH: install it, or set J10CE_BIN to its folder"
        )
    return Kubectl(Path(binary), kubeconfig, context)


def as_list(objects: Iterable[Object]) -> str:
    """The objects as one JSON document for kubectl's standard input; empty for none."""
    items = list(objects)
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}) if items else ""


def identity(item: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """API group and kind, namespace, name: what makes an object the same one."""
    group = str(item["apiVersion"]).rpartition("/")[0]
    metadata = item["metadata"]
    return group, str(item["kind"]), str(metadata.get("namespace", "")), str(metadata["name"])


def _said(text: str) -> str:
    """What kubectl said, without its log; of conflicts only which fields, and what to do here."""
    text = "\n".join(line for line in text.splitlines() if not _LOGGED.match(line)) or text
    if "Apply failed with" not in text:
        return text
    fields = [line for line in text.splitlines() if "Apply failed with" in line or line.startswith("- ")]
    return "\n".join([*fields, "Someone else manages these fields; --force-conflicts takes them over."])


def _items(document: Object) -> list[Object]:
    return list(document["items"]) if str(document.get("kind", "")).endswith("List") else [document]
