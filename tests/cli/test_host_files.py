"""Files for control-plane hosts: whole or not at all, and nobody's work is lost."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from cli import host_files
from cli.host_files import HostFilesError
from cli.installation import Choices


def test_an_image_is_taken_as_it_is() -> None:
    image = r"example.com/\1\g<0>e:1"
    assert f"image: {image}\n" in host_files.texts(Choices(image=image))["static-pod.yaml"]


def test_files_are_as_readable_as_any(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("")
    host_files.write(tmp_path / "a" / "b", {"x": "1", "y": "2"})
    assert {path.name: path.read_text() for path in (tmp_path / "a" / "b").iterdir()} == {"x": "1", "y": "2"}
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "other", tmp_path / "a" / "b" / "x")}
    assert len(modes) == 1


def test_other_content_is_refused_and_named(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("1")
    host_files.refuse_edited(tmp_path, {"x": "1", "y": "2"})
    with pytest.raises(HostFilesError, match=f"{tmp_path / 'x'} is there.*--force"):
        host_files.refuse_edited(tmp_path, {"y": "2", "x": "2"})


def test_a_folder_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "y").mkdir()
    with pytest.raises(HostFilesError, match=f"{tmp_path / 'y'}"):
        host_files.refuse_edited(tmp_path, {"y": "2"})
    with pytest.raises(HostFilesError, match=f"{tmp_path / 'y'}"):
        host_files.write(tmp_path, {"y": "2"})
    assert [path.name for path in tmp_path.iterdir()] == ["y"], "no draft is left"


def test_a_text_that_cannot_be_written_leaves_the_others(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("before")
    with pytest.raises(HostFilesError, match="too long"):
        host_files.write(tmp_path, {"x": "after", "y" * 300: ""})
    assert (tmp_path / "x").read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    with pytest.raises(HostFilesError, match=f"{tmp_path / 'f'}"):
        host_files.write(tmp_path / "f", {"x": "1"})
