"""A pod's band and bounds: who is heard before whom, and that nothing is silent."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos import keys
from qos.bandwidth import Band, Bounds, Limits
from qos.classes import CLASSES
from qos.cluster.objects import Requirement, Selector
from qos.cluster.policy import Policy, Profile
from qos.pods.containers import BEST_EFFORT, BURSTABLE, NodePod
from qos.pods.decision import NOTHING_CHOSEN, Choices, decided, opted_out
from qos.pods.peers.asked import Asked
from qos.pods.peers.bandwidth import ANNOTATIONS as READERS
from qos.pods.traffic import ANNOTATIONS, Traffic, traffic

EGRESS = keys.EGRESS_BANDWIDTH_ANNOTATION
INGRESS = keys.INGRESS_BANDWIDTH_ANNOTATION
KOORDINATOR = keys.KOORDINATOR_NETWORK_ANNOTATION
TERWAY = keys.TERWAY_CLASS_ANNOTATION
BANDWIDTHS = tuple(keys.BANDWIDTHS.values())
CLASS = keys.KOORDINATOR_CLASS_LABEL


def pod(annotations: dict[str, str] | None = None, class_name: str = "", qos: str = BURSTABLE) -> NodePod:
    labels = {CLASS: class_name} if class_name else {}
    return NodePod("u-1", "shop", "web", (), qos, labels, annotations or {})


def policy(
    floor: dict[str, int] | None = None, limit: dict[str, int] | None = None, profile: str = ""
) -> Policy:
    return Policy(
        key="shop/web",
        namespace="shop",
        name="web",
        uid="p",
        generation=1,
        resource_version="1",
        created=0.0,
        selector=Selector((Requirement("app", "In", ("web",)),)),
        floor=floor or {},
        limit=limit or {},
        profile_name=profile,
    )


GOLD = Profile("gold", "LS", band=Band.L1, limits=Limits(egress=1000))


def of(
    one: NodePod,
    *policies: Policy,
    files: dict[str, Asked] | None = None,
    choices: Choices = NOTHING_CHOSEN,
) -> Traffic:
    return traffic(decided(one, list(policies), {"gold": GOLD}, choices=choices), files)


@pytest.mark.parametrize("name", CLASSES)
def test_all_classes_have_the_hosts_band_but_be_which_has_the_last(name: str) -> None:
    assert of(pod(class_name=name)).band is (Band.L2 if name == "BE" else Band.L0)


def test_a_pod_that_asks_for_nothing_keeps_the_hosts_band() -> None:
    assert of(pod(qos=BEST_EFFORT)) == Traffic(Band.L0)
    assert of(pod(qos=BEST_EFFORT), choices=Choices(class_defaults=True)).band is Band.L2


def test_a_pod_that_says_something_of_its_traffic_alone_gets_no_class() -> None:
    one = decided(pod({EGRESS: "10M"}, qos=BEST_EFFORT), [], {})
    assert one.exempt
    assert traffic(one).egress == Bounds(limit=1_250_000)
    assert traffic(one).band is Band.L0


def test_a_pod_that_is_opted_out_has_nothing() -> None:
    assert traffic(opted_out(pod({EGRESS: "10M", TERWAY: "best-effort"}))) == Traffic(Band.L0)


def test_floors_and_limits_of_a_policy_are_bits_there_and_bytes_here() -> None:
    floor = {keys.EGRESS_BANDWIDTH: 100_000_000, keys.INGRESS_BANDWIDTH: 8_000}
    found = of(pod(), policy(floor, {keys.EGRESS_BANDWIDTH: 200_000_000}))
    assert found.egress == Bounds(12_500_000, 25_000_000)
    assert found.ingress == Bounds(1000, None)
    assert found.sources == {"egress limit": "policy web"}
    assert [*found.stated()] == [
        "egress floor 100M bits/s",
        "egress limit 200M bits/s (policy web)",
        "ingress floor 8k bits/s",
    ]


def test_a_class_without_floors_has_none_here_either() -> None:
    found = of(pod(class_name="BE"), policy({keys.EGRESS_BANDWIDTH: 8000}))
    assert found.egress == Bounds()


def test_the_least_limit_counts_whoever_states_it_and_the_others_are_said() -> None:
    files = {"pod.json": Asked(limits=Limits(egress=500))}
    one = pod({EGRESS: "80k", KOORDINATOR: '{"egressLimit": "6k", "ingressLimit": "8k"}'})
    found = of(one, policy(limit={keys.EGRESS_BANDWIDTH: 16_000}, profile="gold"), files=files)
    assert (found.egress.limit, found.ingress.limit) == (500, 1000)
    assert found.sources["egress limit"] == "file pod.json"
    assert sorted((each.key, each.value) for each in found.misread) == [
        ("QoSProfile gold", "8k bits/s"),
        (f"annotation {KOORDINATOR}", '{"egressLimit": "6k", "ingressLimit": "8k"}'),
        (f"annotation {EGRESS}", "80k"),
        ("policy web", "16k bits/s"),
    ]
    assert {each.why for each in found.misread} == {
        "has no effect on egress: file pod.json has 4k bits/s, which is less"
    }


def test_the_same_limit_twice_is_no_contradiction() -> None:
    found = of(pod({EGRESS: "8k", KOORDINATOR: '{"egressLimit": "8k"}'}))
    assert found.egress.limit == 1000
    assert not found.misread


def test_a_profiles_band_stands_above_the_annotation_and_that_above_file_and_class() -> None:
    files = {"pod.json": Asked(Band.L0)}
    one = pod({TERWAY: "best-effort"}, "LS")
    assert of(one, files=files).band is Band.L2
    assert of(pod(class_name="BE"), files=files).band is Band.L0
    found = of(one, policy(profile="gold"), files=files)
    assert (found.band, found.sources["band"]) == (Band.L1, "QoSProfile gold")
    assert [(each.key, each.value, each.why) for each in found.misread] == [
        (f"annotation {TERWAY}", "best-effort", "has no effect: QoSProfile gold says L1"),
        ("file pod.json", "L0", "has no effect: QoSProfile gold says L1"),
    ]


def test_a_long_annotation_is_not_read_at_all() -> None:
    """A tenant may write 256 kB on each pod, and others' pods wait for the round."""
    fields = {f"unknown{number}": "1" for number in range(20_000)} | {"egressLimit": "10M"}
    found = of(pod({keys.KOORDINATOR_NETWORK_ANNOTATION: json.dumps(fields)}))
    [misread] = found.misread
    assert "no more than 4096 are read" in misread.why
    assert len(misread.value) <= 4096
    assert found.egress == Bounds()


def test_what_cannot_be_read_is_said_with_pod_key_and_value() -> None:
    found = of(pod({EGRESS: "100m", KOORDINATOR: '{"egresLimit": "1M", "egressRequest": "1M"}'}))
    assert found.egress == Bounds()
    unknown, milli = map(str, found.misread)
    assert unknown == f"Pod shop/web: annotation {KOORDINATOR}: 'egresLimit': is no field of this annotation"
    assert milli.startswith(f"Pod shop/web: annotation {EGRESS}: '100m': ")
    assert milli.endswith("less than 1k bits a second: m means thousandths, M millions")
    assert [each.promise for each in found.unsupported] == ["networkQOS.egressRequest"]


QUANTITIES = st.sampled_from(["1k", "10M", "100m", "1G", "x", ""])
TEXTS = QUANTITIES | st.sampled_from(["guaranteed", "best-effort", '{"egressLimit": "5M"}', "{}", "["])


@given(
    st.dictionaries(st.sampled_from(sorted(ANNOTATIONS)), TEXTS),
    st.sampled_from(["", *CLASSES]),
    st.none() | st.builds(Limits, st.none() | st.integers(125, 10**9), st.none() | st.integers(125, 10**9)),
    st.none() | st.sampled_from(Band),
    st.dictionaries(st.sampled_from(BANDWIDTHS), st.integers(1000, 10**10)),
)
def test_whatever_is_said_no_stated_limit_is_exceeded_and_who_is_overruled_is_named(
    annotations: dict[str, str],
    class_name: str,
    limits: Limits | None,
    band: Band | None,
    stated: dict[str, int],
) -> None:
    profile = replace(GOLD, limits=limits or Limits(), band=band)
    one = decided(pod(annotations, class_name), [policy(limit=stated, profile="gold")], {"gold": profile})
    found = traffic(one)
    bounds = {"egress": found.egress.limit, "ingress": found.ingress.limit}
    sayings = {
        "QoSProfile gold": Asked(profile.band, profile.limits),
        "policy web": Asked(limits=Limits(*(stated[n] // 8 if n in stated else None for n in BANDWIDTHS))),
    }
    named = {each.key for each in found.misread}
    for key, text in annotations.items():
        try:
            sayings[f"annotation {key}"] = READERS[key](text)
        except ValueError:
            assert f"annotation {key}" in named
    for source, asked in sayings.items():
        for way, limit in bounds.items():
            amount = asked.limits.of(way)
            if amount is not None:
                assert limit is not None
                assert limit <= amount
                assert limit == amount or source in named
        assert asked.band in (None, found.band) or source in named
    least = {way: [one.limits.of(way) for one in sayings.values()] for way in bounds}
    assert all(limit is None or limit in least[way] for way, limit in bounds.items()), "somebody stated it"
