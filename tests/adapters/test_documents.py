"""YAML files of several documents: where a field is written, and what errors say."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters import documents
from adapters.documents import DocumentsError

TWO = """\
# a comment first
kind: Pod
metadata:
  labels: {koordinator.sh/qosClass: LS}
spec:
  containers:
    - name: web
      image: web:1
    - name: log
---
---
# the second one
kind: Policy
spec:
  floor: {cpu: 1}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "two.yaml"
    path.write_text(TWO)
    return path


def test_empty_documents_are_left_out(file: Path) -> None:
    assert [document["kind"] for document in documents.read(file, "")] == ["Pod", "Policy"]


@pytest.mark.parametrize(
    ("which", "field", "line"),
    [
        (0, "", 2),
        (0, "metadata.labels.koordinator.sh/qosClass", 4),
        (0, "spec.containers[1].name", 9),
        (0, "spec.containers[1].resources.limits", 9),
        (0, "spec.containers[7]", 6),
        (0, "spec.nodeName", 5),
        (1, "", 13),
        (1, "spec.floor.cpu", 15),
    ],
)
def test_a_field_has_a_line(file: Path, which: int, field: str, line: int) -> None:
    document = documents.read(file, "")[which]
    assert documents.line_of(document, documents.path_of(document, field)) == line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "two.yaml:1: is not YAML: "),
        ("a: 1\n---\n- b\n", "two.yaml:3: a mapping is wanted"),
        ("just text\n", "two.yaml:1: a mapping is wanted"),
        ("a: 1\na: 2\n", "two.yaml:2: is not YAML: found duplicate key"),
        ("[" * 1000, "two.yaml: is nested too deeply"),
    ],
)
def test_what_is_no_mapping_is_refused(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(DocumentsError) as error:
        documents.read(file, "a mapping is wanted")
    assert message in str(error.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DocumentsError, match=r"none\.yaml: cannot be read: "):
        documents.read(tmp_path / "none.yaml", "")
    (tmp_path / "latin").write_bytes(b"a: \xe4")
    with pytest.raises(DocumentsError, match="latin: cannot be read: "):
        documents.read(tmp_path / "latin", "")
