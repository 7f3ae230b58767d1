"""What administrators say of a node's network in words of other projects: terway-qos' files, Koordinator's
slo-controller-config. Pure text to a Configuration.

terway-qos' amounts are bytes a second, and 0 says nothing; its bands are ours. Koordinator's are percents of
the link where they are numbers, and bits a second where they are text. Its networkQOS is heeded of lsClass
and beClass alone, as by its own agent: they become the shares of the bands that LS and BE have here.
Source: AliyunContainerService/terway-qos pkg/config (config.go, types.go) and README;
koordinator-sh/koordinator pkg/koordlet/runtimehooks/hooks/terwayqos, apis/configuration, apis/slo/v1alpha1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from qos.bandwidth import Band, BytesPerSecond, from_quantity
from qos.classes import CLASSES
from qos.cluster.objects import Requirement, Selector
from qos.cluster.selectors import matches
from qos.network.bands import Amount, Bands, Configuration, Share
from qos.network.wanted import Direction
from qos.pods.peers.reading import Fields, shown

_LARGEST: Final = 2**63 - 1
_LINE: Final = re.compile(r"\s*([A-Za-z0-9_]+)(?:=|\s+)([0-9]{1,19})\s*", re.ASCII)
_WAYS: Final = {Direction.EGRESS: "tx", Direction.INGRESS: "rx"}
_FILE_BANDS: Final = {Band.L0: "online", Band.L1: "offline_l1", Band.L2: "offline_l2"}
_JSON_BANDS: Final = {Band.L0: "l0", Band.L1: "l1", Band.L2: "l2"}
_CLASSES: Final[Mapping[str, Band | None]] = {
    "lsClass": CLASSES["LS"].band,
    "beClass": CLASSES["BE"].band,
    "lsrClass": None,
    "systemClass": None,
    "cgroupRoot": None,
}
"""The band that each becomes; None: it is not heeded."""
_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")


class Read(NamedTuple):
    """The configuration with what was read, and what of it has no effect, and why, for people."""

    configuration: Configuration
    ignored: tuple[str, ...]


def with_global_bps_config(base: Configuration, text: str) -> Read:
    """terway-qos' global_bps_config: a line an amount, such as `offline_l1_tx_bps_min 100000000`."""
    given: dict[str, int] = {}
    ignored = []
    for number, line in enumerate(text.splitlines(), start=1):
        match = _LINE.fullmatch(line)
        if match and match[1] in _names(_FILE_BANDS):
            given[match[1]] = min(int(match[2]), _LARGEST)
        elif line.strip():
            ignored.append(
                f"global_bps_config: line {number}: {line.strip()[:80]!r} is no amount that is known"
            )
    return Read(_of_terway(base, given, _FILE_BANDS), tuple(ignored))


def with_node_json(base: Configuration, text: str) -> Read:
    """terway-qos' node.json, which it prefers where there is one: the same amounts, L0's among them."""
    try:
        fields = Fields(text)
        given = {name: fields.integer(name, 0, _LARGEST) or 0 for name in _names(_JSON_BANDS)}
    except ValueError as error:
        return Read(base, (f"node.json: {error}",))
    unknown = tuple(f"node.json: {name}: is no field of it" for name in fields.rest())
    return Read(_of_terway(base, given, _JSON_BANDS), unknown)


def _names(bands: Mapping[Band, str]) -> frozenset[str]:
    amounts = {f"{band}_{way}_bps_{end}" for band in bands.values() for way in ("tx", "rx") for end in _ENDS}
    return frozenset(amounts | {"hw_tx_bps_max", "hw_rx_bps_max"})


_ENDS: Final = ("min", "max")


def _of_terway(base: Configuration, given: Mapping[str, int], bands: Mapping[Band, str]) -> Configuration:
    for direction, way in _WAYS.items():
        shares = {}
        for band, name in bands.items():
            least, most = (given.get(f"{name}_{way}_bps_{end}", 0) for end in _ENDS)
            shares[band] = (Amount(rate=least) if least else None, Amount(rate=most) if most else None)
        base = _with(base, direction, shares, given.get(f"hw_{way}_bps_max", 0))
    return base


def _with(
    base: Configuration,
    direction: Direction,
    shares: Mapping[Band, tuple[Amount | None, Amount | None]],
    total: BytesPerSecond,
) -> Configuration:
    """The configuration with what is stated of one direction: minima and maxima by band, the total."""
    bands = base.bands(direction)
    stated = dict(bands.shares)
    for band, (least, most) in shares.items():
        if least or most:
            old = bands.share(band)
            stated[band] = Share(least or old.minimum, most or old.maximum)
    new = Bands(bands.host, stated)
    if direction is Direction.EGRESS:
        return replace(base, egress=new, total_egress=total or base.total_egress)
    return replace(base, ingress=new, total_ingress=total or base.total_ingress)


def with_slo_controller_config(
    base: Configuration, data: Mapping[str, str], labels: Mapping[str, str]
) -> Read:
    """Koordinator's ConfigMap, by key; `labels`: the node's, which choose among its nodeStrategies."""
    ignored: list[str] = []
    system = _strategy(data, "system-config", labels, ignored)
    classes = _strategy(data, "resource-qos-config", labels, ignored)
    try:
        total = _total(system.get("totalNetworkBandwidth"))
        base = replace(
            base, total_egress=total or base.total_egress, total_ingress=total or base.total_ingress
        )
    except ValueError as error:
        ignored.append(f"system-config: {error}")
    for name, band in _CLASSES.items():
        try:
            base = _of_koordinator(base, band, classes.get(name), name, ignored)
        except ValueError as error:
            ignored.append(f"resource-qos-config: {name}.networkQOS: {error}")
    return Read(base, tuple(ignored))


def _total(value: Any) -> BytesPerSecond:
    if value in (None, 0, "", "0") and value is not False:
        return 0
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"totalNetworkBandwidth: {shown(value)} is no quantity")
    return from_quantity("totalNetworkBandwidth", value)


def _strategy(
    data: Mapping[str, str], key: str, labels: Mapping[str, str], ignored: list[str]
) -> dict[str, Any]:
    """clusterStrategy, with the first nodeStrategy that selects the node laid over it."""
    if not data.get(key):
        return {}
    try:
        fields = Fields(data[key])
        merged = _object(fields.take("clusterStrategy"), "clusterStrategy")
        for strategy in fields.objects("nodeStrategies"):
            if _selects(strategy.get("nodeSelector"), labels):
                return _merged(merged, strategy)
    except (ValueError, RecursionError) as error:  # objects laid over each other, too, may be nested deeply
        ignored.append(f"{key}: {error}")
        return {}
    return merged


def _selects(written: Any, labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects the node; one that is not there selects none."""
    if written is None:
        return False
    fields = Fields(_object(written, "nodeSelector"))
    exact = _object(fields.take("matchLabels"), "matchLabels")
    wanted = [Requirement(key, "In", (str(value),)) for key, value in exact.items()]
    for each in fields.objects("matchExpressions"):
        one = Fields(each)
        key, operator, values = one.text("key"), one.choice("operator", _OPERATORS), one.take("values") or []
        if not key or not operator or not isinstance(values, list):
            raise ValueError(f"matchExpressions: {shown(each)} is no expression")
        wanted.append(Requirement(key, operator, tuple(map(str, values))))
    return matches(Selector(tuple(wanted)), labels)


def _of_koordinator(
    base: Configuration, band: Band | None, written: Any, name: str, ignored: list[str]
) -> Configuration:
    if not _enabled(written):
        return base
    if band is None:
        raise ValueError("heeded of lsClass and beClass alone, as by Koordinator's own agent")
    fields = Fields(written["networkQOS"])
    fields.boolean("enable")
    for direction in Direction:
        least, most = (_amount(fields, f"{direction.value}{end}") for end in ("Request", "Limit"))
        base = _with(base, direction, {band: (least, most)}, 0)
    where = f"resource-qos-config: {name}.networkQOS"
    ignored += (f"{where}.{field}: is no field of it" for field in fields.rest())
    return base


def _enabled(written: Any) -> bool:
    network = _object(written, "class").get("networkQOS")
    return bool(network) and Fields(_object(network, "networkQOS")).boolean("enable") is True


def _amount(fields: Fields, name: str) -> Amount | None:
    """A percentage of the link as a number, bits a second as text; 0 and "" say nothing."""
    value = fields.take(name)
    if value in (None, 0, "", "0") and value is not False:
        return None
    if isinstance(value, str):
        return Amount(rate=from_quantity(name, value))
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 100:
        raise ValueError(f"{name}: {shown(value)} is no percentage from 0 to 100, nor a quantity as text")
    return Amount(percent=value)


def _object(value: Any, name: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{name}: {shown(value)} is no object")
    return value


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Objects laid over each other, field by field; null leaves what is below."""
    return {**under, **dict(_laid(under, over))}


def _laid(under: Mapping[str, Any], over: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in over.items():
        if isinstance(value, dict) and isinstance(under.get(name), dict):
            yield name, _merged(under[name], value)
        elif value is not None:
            yield name, value
