"""The chart's templates, made of what our kustomizations make: text in, text out.

Where two kustomizations make the same object differently (the agent with and without network floors), the
lines that differ are put into an `if`. What a user may set stands as a mark (`@@...@@`) in the object until
it is text.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.representer import SafeRepresenter

import manifests
from cli import admission, installation
from cli.chart import settings
from cli.chart.kustomization import FILE, KustomizationError, Made, documents, render
from cli.kubectl import Object
from ledger.decisions import Mode

CHART: Final = "charts/j10ce-qos"
_CONFIGURATIONS: Final = {
    "j10ce-scheduler-config": "overlays/second-scheduler",
    "j10ce-placeholders-config": "placeholders",
}
"""ConfigMaps with the programs' configuration, and where the manifests have it."""
_BEST, _BETA = admission.VERSIONS
_RAISES: Final = 'semverCompare ">=1.36-0" .Capabilities.KubeVersion.Version'
_RAISES_BY_BETA: Final = f'.Capabilities.APIVersions.Has "{admission.GROUP}/{_BETA}/{admission.RAISING[0]}"'
_OBSERVE: Final = 'eq .Values.mode "Observe"'
_ASKED: Final = 'ne .Values.keeper "Placeholders"'
_BOTH: Final = 'eq .Values.keeper "Both"'


@dataclass(frozen=True, slots=True)
class Part:
    """One kustomization: when the chart renders what is its own, and what else renders that differently:
    another kustomization, when that is chosen instead.
    """

    folder: str
    when: str = ""
    instead: str = ""
    instead_when: str = ""


PARTS: Final = (
    Part("base", instead="agent", instead_when=".Values.agent.enabled"),
    Part(
        "overlays/second-scheduler",
        f'and ({_ASKED}) (eq .Values.overlay "second-scheduler")',
        "both-keepers",
        _BOTH,
    ),
    Part("overlays/default-scheduler", f'and ({_ASKED}) (eq .Values.overlay "default-scheduler")'),
    Part("hand-over", 'ne .Values.keeper "Extender"', "both-keepers", _BOTH),
    Part("placeholders", 'eq .Values.keeper "Placeholders"'),
    Part("manager", ".Values.manager.enabled"),
    Part("koordinator", ".Values.koordinator.reservations"),
    Part("quotas", ".Values.quotas.enabled"),
    Part("autoscaling", ".Values.autoscaling.buffers"),
    Part("agent", ".Values.agent.enabled", "agent-network", 'ne .Values.agent.networkFloors "None"'),
)

NOT_RENDERED: Final = ("rescheduling", "rescheduling-active")
"""Kustomizations that the chart has not got (docs/limits.md)."""


def files(folder: Path, definitions: Mapping[str, str]) -> dict[str, str]:
    """The generated files of the chart by name below it. Raises KustomizationError.

    folder: that of manifests; definitions: the text of each file of the CRDs, which may be newer than those.
    """
    _refuse_unknown(folder)
    made: dict[str, str] = {}
    for part in PARTS:
        made |= _templates(folder, part)
    for name, text in definitions.items():
        (crd,) = documents(text)
        made[f"templates/crds/{name}"] = _template(f"crds/{name}", ".Values.crds.install", [_crd(crd)])
    defaults = settings.with_defaults(_by_name(folder))
    made["values.yaml"] = settings.values(defaults, _dump)
    made["values.schema.json"] = settings.schema(defaults)
    made["README.md"] = settings.readme(defaults)
    return made


def _refuse_unknown(folder: Path) -> None:
    known = {part.folder for part in PARTS} | {part.instead for part in PARTS} | {*NOT_RENDERED}
    for path in sorted(folder.rglob(FILE)):
        name = str(path.parent.relative_to(folder))
        if name not in known:
            raise KustomizationError(
                f"{path}: PARTS in cli/chart/templates.py does not say when it is rendered"
            )


def _by_name(folder: Path) -> dict[tuple[str, str], Object]:
    return {
        (one.item["kind"], one.item["metadata"]["name"]): one.item
        for part in PARTS
        for one in render(folder / part.folder)
    }


def _templates(folder: Path, part: Part) -> dict[str, str]:
    """A template for each file of a kustomization's own."""
    own = _by_source(folder / part.folder, render(folder / part.folder))
    other = _by_source(folder / part.folder, render(folder / part.instead)) if part.instead else {}
    made = {}
    for name, items in own.items():
        texts = [_text(item) for item in items]
        if name in other:
            changed = [_text(item, before) for item, before in zip(other[name], items, strict=True)]
            texts = [
                merged(before, after, part.instead_when) for before, after in zip(texts, changed, strict=True)
            ]
        path = f"{part.folder.rpartition('/')[2]}/{name}"
        made[f"templates/{path}"] = _template(f"{part.folder}/{name}", part.when, texts)
    return made


def _by_source(folder: Path, made: Iterable[Made]) -> dict[str, list[Object]]:
    """The objects by the name of their file, those of files in this folder."""
    found: dict[str, list[Object]] = {}
    for one in made:
        if one.source.parent == folder.resolve():
            found.setdefault(one.source.name, []).append(one.item)
    return found


def _template(source: str, when: str, texts: Iterable[str]) -> str:
    """A template's file: what it is made of, when it is rendered, its documents."""
    body = "---\n".join(texts)
    opening = (
        "{{- /* Generated from manifests/"
        + source
        + " by `j10ce dev generate`: the reasons are there. */}}\n"
    )
    return f"{opening}{{{{- if {when} }}}}\n{body}{{{{- end }}}}\n" if when else f"{opening}{body}"


def merged(before: str, after: str, when: str) -> str:
    """One text for both: the lines that differ only when, or only unless, the condition holds."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    lines: list[str] = []
    for what, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if what == "equal":
            lines += old[a:b]
        elif what == "insert":
            lines += [f"{{{{- if {when} }}}}\n", *new[c:d], "{{- end }}\n"]
        elif what == "delete":
            lines += [f"{{{{- if not ({when}) }}}}\n", *old[a:b], "{{- end }}\n"]
        else:
            lines += [f"{{{{- if {when} }}}}\n", *new[c:d], "{{- else }}\n", *old[a:b], "{{- end }}\n"]
    return "".join(lines)


def _crd(crd: Object) -> str:
    crd["metadata"]["annotations"] = "@@keep@@"
    keep = (
        "  {{- if .Values.crds.keep }}\n"
        "  annotations:\n    helm.sh/resource-policy: keep  # all policies go with their definition\n"
        "  {{- end }}\n"
    )
    return _dump(crd).replace("  annotations: '@@keep@@'\n", keep)


def _text(item: Object, before: Object | None = None) -> str:
    """An object as text of a template; before: the same as it is without what is chosen instead."""
    item = deepcopy(item)
    plain = _dump(item)
    if "{{" in plain or "@@" in plain:
        raise KustomizationError(
            f"{item['kind']} {item['metadata']['name']}: has {{{{ or @@, which mean more here"
        )
    _mark(item, before or item)
    text = _marked(_dump(item))
    if item["kind"].endswith("Binding") and item["metadata"]["name"] in admission.BINDINGS:
        nowhere = deepcopy(item)
        nowhere["spec"]["matchResources"] = admission.NOWHERE
        text = merged(text, text.replace(_marked(_dump(item)), _marked(_dump(nowhere))), _OBSERVE)
    if (item["kind"], item["metadata"]["name"]) == admission.OWNER_CLASSES:
        nobodys = deepcopy(item)
        admission.give_nobody(nobodys)
        text = merged(text, _marked(_dump(nobodys)), f"not (or ({_RAISES}) ({_RAISES_BY_BETA}))")
    if item["kind"] in admission.RAISING:
        version = f'{{{{ ternary "{_BEST}" "{_BETA}" ({_RAISES}) }}}}'
        text = text.replace(f"{admission.GROUP}/{_BEST}\n", f"{admission.GROUP}/{version}\n", 1)
        text = f"{{{{- if or ({_RAISES}) ({_RAISES_BY_BETA}) }}}}\n{text}{{{{- end }}}}\n"
    if item["kind"] == "Namespace":
        # Helm made the one that the release is in, or somebody else did.
        return f'{{{{- if ne .Release.Namespace "{item["metadata"]["name"]}" }}}}\n{text}{{{{- end }}}}\n'
    return text


def _mark(item: Object, before: Object) -> None:
    """Put marks where the chart has values; `before` as _text has it."""
    metadata = item["metadata"]
    metadata["labels"]["app.kubernetes.io/version"] = "@@.Chart.AppVersion@@"
    _mark_settings(item, before)
    if item["kind"] == "ConfigMap":
        folder = _CONFIGURATIONS[metadata["name"]]
        item["data"] = {name: f"@@text {folder}/{name}@@" for name in item["data"]}
    if item["kind"] not in installation.PROGRAMS:
        return
    pod = item["spec"]["template"]
    pod["spec"] = {"imagePullSecrets": "@@with image.pullSecrets@@", **pod["spec"]}
    for container in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]:
        name = container["image"].partition(":")[0]
        container["image"] = f'@@include "{name}.image" .@@'
        for variable in container.get("env", []):
            if chosen := _VARIABLES.get(variable["name"]):
                variable["value"] = chosen
    for name in [volume.get("configMap", {}).get("name") for volume in pod["spec"].get("volumes", [])]:
        if name not in _CONFIGURATIONS:
            continue
        folder = _CONFIGURATIONS[name].rpartition("/")[2]
        template = f'print $.Template.BasePath "/{folder}/{name}.yaml"'
        pod["metadata"]["annotations"]["checksum/configuration"] = f"@@include ({template}) . | sha256sum@@"


def _mark_settings(item: Object, before: Object) -> None:
    """What was changed for what is chosen instead is no user's to set."""
    for setting in settings.SETTINGS:
        if not setting.place or setting.place[:2] != (item["kind"], item["metadata"]["name"]):
            continue
        path = setting.place[2]
        if settings.at(item, path) == settings.at(before, path):
            how = "scalar" if setting.schema.get("type") == "integer" else "block"
            settings.at(item, path[:-1])[path[-1]] = f"@@{how} {setting.path}@@"


_VARIABLES: Final = {
    installation.OBSERVE: '@@ternary "1" "0" (eq .Values.mode "Observe")@@',
    installation.QUOTAS: '@@ternary "1" "0" (and .Values.quotas.enabled (ne .Values.mode "Observe"))@@',
    installation.NETWORK: '@@ternary "1" "0" (eq .Values.agent.networkFloors "Kept")@@',
}


def _marked(text: str) -> str:
    """The text with its marks turned into what Helm reads."""
    return "".join(_line(line) for line in text.splitlines(keepends=True))


def _line(line: str) -> str:
    found = re.fullmatch(r"( *(?:- )?)([^ ]+): '?@@(\w+ )?(.*)@@'?\n", line)
    if found is None:
        return line
    before, key, how, what = found.groups()
    indent = len(before) + 2
    match (how or "").strip():
        case "scalar":
            return f"{before}{key}: {{{{ .Values.{what} }}}}\n"
        case "block":
            return f"{before}{key}: {{{{- toYaml .Values.{what} | nindent {indent} }}}}\n"
        case "with":
            rest = f"{before}{key}:\n{' ' * indent}{{{{- toYaml . | nindent {indent} }}}}\n"
            return f"{before}{{{{- with .Values.{what} }}}}\n{rest}{before}{{{{- end }}}}\n"
        case "text":
            return f"{before}{key}: |\n{_configuration(what, ' ' * indent)}"
        case word:
            return f"{before}{key}: {{{{ {f'{word} {what}'.strip()} | quote }}}}\n"


def _configuration(path: str, indent: str) -> str:
    """A configuration file in each mode, as a block of a ConfigMap; path: below the manifests."""
    name, shipped = path.rpartition("/")[2], manifests.text(path)
    shipped = re.sub(
        installation.PERCENTAGE, r"\1{{ .Values.scheduler.percentageOfNodesToScore }}", shipped, flags=re.M
    )
    if name == "extender.yaml":
        text = re.sub(r"^mode: \w+", "mode: {{ .Values.mode }}", shipped, flags=re.MULTILINE)
        text = re.sub(r"^capPercent: \d+", "capPercent: {{ .Values.capPercent }}", text, flags=re.MULTILINE)
        text = re.sub(r"^bothKeepers: \w+", f"bothKeepers: {{{{ {_BOTH} }}}}", text, flags=re.MULTILINE)
        chosen = r"\1{{ .Values.koordinator.reservations }}"
        text = re.sub(r"^( +reservations: )\w+", chosen, text, flags=re.MULTILINE)
        chosen = r"\1{{ .Values.quotas.enabled }}"
        text = re.sub(r"^(quotas:\n +enabled: )\w+", chosen, text, flags=re.MULTILINE)
        chosen = r"\1{{ .Values.autoscaling.buffers }}"
        text = re.sub(r"^( +buffers: )\w+", chosen, text, flags=re.MULTILINE)
        return _indented(text, indent)
    others = {mode.value: installation.in_mode(shipped, mode.value) for mode in Mode}
    lines = [
        f'{{{{- {"else " if number else ""}if eq .Values.mode "{mode}" }}}}\n{_indented(text, indent)}'
        for number, (mode, text) in enumerate(one for one in others.items() if one[1] != shipped)
    ]
    return "".join([*lines, "{{- else }}\n", _indented(shipped, indent), "{{- end }}\n"])


def _indented(text: str, indent: str) -> str:
    return "".join(f"{indent}{line}" if line.strip() else line for line in text.splitlines(keepends=True))


class _Literal(SafeRepresenter):
    """Texts of several lines as blocks, as people write them."""


def _string(representer: SafeRepresenter, value: str) -> Any:
    return representer.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Literal.add_representer(str, _string)


def _dump(document: Mapping[str, Any]) -> str:
    """YAML in the order of the document, no aliases, no lines broken."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Representer = _Literal
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.representer.ignore_aliases = lambda _: True
    yaml.width = 10_000
    out = StringIO()
    yaml.dump(document, out)
    return out.getvalue()
