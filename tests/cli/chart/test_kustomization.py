"""Our own reading of kustomizations: merges as kustomize does, and says what it does not understand."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.chart.kustomization import KustomizationError, render

ACCOUNT = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: one, namespace: ours}\n"


def write(folder: Path, kustomization: str, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "kustomization.yaml").write_text(kustomization)
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder


def test_resources_come_with_their_file_and_labels(tmp_path: Path) -> None:
    write(tmp_path / "base", "resources: [account.yaml]\n", account=ACCOUNT)
    top = write(tmp_path / "top", "resources: [../base]\nlabels: [{pairs: {part: floors}}]\n")
    (made,) = render(top)
    assert made.source == (tmp_path / "base" / "account.yaml").resolve()
    assert made.item["metadata"] == {"name": "one", "namespace": "ours", "labels": {"part": "floors"}}


def test_lists_of_named_things_are_merged_by_name_what_is_patched_first(tmp_path: Path) -> None:
    pods = "kind: DaemonSet\nmetadata: {name: one}\nspec: {env: [{name: a, value: 1}, {name: b, value: 2}]}\n"
    patch = (
        "kind: DaemonSet\nmetadata: {name: one}\nspec: {env: [{name: b, value: 3}, {name: c, value: 4}]}\n"
    )
    folder = write(
        tmp_path, "resources: [pods.yaml]\npatches: [{path: patch.yaml}]\n", pods=pods, patch=patch
    )
    (made,) = render(folder)
    assert made.item["spec"]["env"] == [
        {"name": "b", "value": 3},
        {"name": "c", "value": 4},
        {"name": "a", "value": 1},
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("resources: []\nnamePrefix: x-\n", "namePrefix is not understood here"),
        (
            (
                "resources: [account.yaml]\npatches: [{target: {kind: ServiceAccount, name: one}, patch: "
                "'[{op: remove, path: /metadata/name}]'}]\n"
            ),
            "remove /metadata/name is not understood here",
        ),
    ],
)
def test_what_is_not_understood_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(KustomizationError, match=said):
        render(write(tmp_path, text, account=ACCOUNT))
