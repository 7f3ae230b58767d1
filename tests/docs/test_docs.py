"""What the documentation says is so: links lead somewhere, commands exist, policies are valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from typer.core import TyperGroup

from cli.app import ENTRIES, load
from qos import keys
from qos.api.policy import MinimalReservationPolicy
from qos.classes import CLASSES
from qos.pods.peers import katalyst, koordinator, unheeded

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
MAKE_TARGET = re.compile(r"(?:^\$ |`)make ([a-z][a-z -]*)", re.MULTILINE)
J10CE = re.compile(r"(?:^\$ |`)j10ce ([a-z][a-z -]*)", re.MULTILINE)


def page_names() -> list[str]:
    return [str(page.relative_to(ROOT)) for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=page_names())
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"`[^`\n]*`", "", page.read_text())  # a regular expression may look like one
    links = [link for link in LINK.findall(text) if "://" not in link]
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=page_names())
def test_links_to_headings_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\[[^\]]*\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text())
    missing = [
        (file, anchor)
        for file, anchor in links
        if "://" not in file and anchor not in anchors(page.parent / file if file else page)
    ]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=page_names())
def test_make_targets_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = {word for words in MAKE_TARGET.findall(page.read_text()) for word in words.split()[:1]}
    missing = {name for name in named if not re.search(rf"^{name}:", makefile, re.MULTILINE)}
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=page_names())
def test_commands_exist(page: Path) -> None:
    programs = {entry.name: load(entry.target) for entry in ENTRIES}
    for words in J10CE.findall(page.read_text()):
        name, *rest = words.split()
        assert name in programs, f"{page.name}: j10ce {words}"
        program = programs[name]
        if isinstance(program, TyperGroup) and rest and not rest[0].startswith("-"):
            assert rest[0] in program.commands, f"{page.name}: j10ce {words}"


def test_the_picture_of_the_readme_loses_no_hold() -> None:
    picture = (ROOT / "README.md").read_text().split("```")[1]
    rows = [row.partition("──▶" if "──▶" in row else "    ") for row in picture.splitlines() if "│" in row]
    before = sum(left.count("░░░░░░") for left, _, _ in rows)
    assert before == sum(right.count("░░░░░░") for _, _, right in rows)
    assert f"   {before} slots" in picture


def test_the_policies_of_the_readme_are_valid() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    policies = [YAML(typ="safe").load(block) for block in blocks]
    assert policies
    for policy in policies:
        assert policy["kind"] == "MinimalReservationPolicy"
        MinimalReservationPolicy.model_validate(policy)


def test_the_page_of_classes_names_every_key_that_is_known() -> None:
    page = (ROOT / "docs" / "classes.md").read_text()
    known = {
        keys.KOORDINATOR_CLASS_LABEL,
        keys.KATALYST_LEVEL,
        *koordinator.ANNOTATIONS,
        *katalyst.ANNOTATIONS,
        *CLASSES,
        *katalyst.CLASSES,
        *unheeded.KNOWN,
        *unheeded.PROJECTS,
    }
    assert not {key for key in known if key not in page}


def test_the_example_on_the_page_of_classes_is_part_of_the_example_file() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "classes.md").read_text(), re.DOTALL)
    example = YAML(typ="safe").load(ROOT / "examples" / "profiles" / "guaranteed-pro.yaml")["spec"]
    shown = YAML(typ="safe").load(block)["spec"]
    assert shown["class"] == example["class"]
    assert shown["promises"].items() <= example["promises"].items()
