"""Sources and objects belong together, and sources to the code that plans."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from agent.network.bpf import objects
from agent.network.bpf.elf import ObjectError
from qos.network.wanted import MAJOR


def test_every_source_and_object_is_as_recorded() -> None:
    assert objects.differing(objects.record(), objects.sums()) == []
    assert set(objects.sums()[objects.OBJECTS]) == {
        f"{source.stem}.o" for source in (objects.FOLDER / objects.SOURCES).glob("*.c")
    }


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in (objects.SOURCES, objects.OBJECTS):
        shutil.copytree(objects.FOLDER / name, tmp_path / name)
    return tmp_path


def test_a_changed_source_a_missing_and_a_new_one_are_named(copy: Path) -> None:
    sources = copy / objects.SOURCES
    (sources / "packet.h").write_text((sources / "packet.h").read_text() + "\n")
    (sources / "count.c").unlink()
    (sources / "new.c").write_text("")
    assert objects.differing(objects.record(copy), objects.sums(copy)) == [
        "sources/count.c", "sources/new.c", "sources/packet.h",
    ]  # fmt: skip


def test_a_damaged_object_is_not_loaded(copy: Path) -> None:
    path = copy / objects.OBJECTS / "classify.o"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert objects.differing(objects.record(copy), objects.sums(copy)) == ["objects/classify.o"]
    with pytest.raises(ObjectError, match=r"objects/classify\.o .* not as released"):
        objects.load("classify", copy)


def test_a_missing_object_is_named(copy: Path) -> None:
    with pytest.raises(ObjectError, match=r"objects/other\.o .* cannot be read"):
        objects.load("other", copy)


def test_the_programs_know_our_qdiscs_handle() -> None:
    source = (objects.FOLDER / objects.SOURCES / "packet.h").read_text()
    found = re.search(r"#define MAJOR (0x[0-9A-F]+)u", source)
    assert found is not None
    assert int(found[1], 16) == MAJOR
