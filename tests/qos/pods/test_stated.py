"""What holds of a container's resources while a resize in place is wanted, granted, set or refused."""

import pytest

from qos.pods.containers import from_manifest
from qos.pods.stated import Reported, Stated, granted, is_in_progress, is_pending

BEFORE = {"cpu": 1000, "memory": 100}
WANTED = {"cpu": 2000, "memory": 100}
LIMITS_BEFORE = {"cpu": 1500, "memory": 200}
LIMITS_WANTED = {"cpu": 3000, "memory": 200}
SPEC = Stated(WANTED, LIMITS_WANTED)
UNTOUCHED = Stated(BEFORE, LIMITS_BEFORE)


@pytest.mark.parametrize(
    ("reported", "pending", "holds"),
    [
        (None, False, SPEC),
        (Reported(), True, SPEC),
        (Reported(limits=LIMITS_BEFORE), True, SPEC),
        (Reported(WANTED, LIMITS_WANTED), False, SPEC),
        (Reported(WANTED, LIMITS_BEFORE), False, SPEC),
        (Reported(BEFORE, LIMITS_BEFORE), False, UNTOUCHED),
        (Reported(BEFORE, LIMITS_BEFORE), True, UNTOUCHED),
        (Reported(BEFORE), True, Stated(BEFORE, LIMITS_WANTED)),
        (Reported(WANTED, LIMITS_BEFORE), True, Stated(WANTED, {"cpu": 2000, "memory": 200})),
        (Reported({}, {}), True, Stated({"cpu": 0, "memory": 0}, {"cpu": 0, "memory": 0})),
    ],
    ids=[
        "no status",
        "no kubelet that reports",
        "only limits reported",
        "set",
        "granted, not yet set",
        "not yet seen",
        "deferred",
        "limits not reported",
        "limits deferred",
        "nothing before",
    ],
)
def test_what_holds(reported: Reported | None, pending: bool, holds: Stated) -> None:
    assert granted(SPEC, reported, pending) == holds


@pytest.mark.parametrize(
    ("resize", "conditions", "pending"),
    [
        ("", [], False),
        ("InProgress", ["PodResizeInProgress", "Ready"], False),
        ("Deferred", [], True),
        ("", ["Ready", "PodResizePending"], True),
    ],
)
def test_what_is_pending(resize: str, conditions: list[str], pending: bool) -> None:
    assert is_pending(resize, conditions) is pending


@pytest.mark.parametrize(
    ("resize", "conditions", "in_progress"),
    [
        ("", ["Ready"], False),
        ("Deferred", ["PodResizePending"], False),
        ("InProgress", [], True),
        ("", ["Ready", "PodResizeInProgress"], True),
    ],
)
def test_what_is_in_progress(resize: str, conditions: list[str], in_progress: bool) -> None:
    assert is_in_progress(resize, conditions) is in_progress


def test_a_manifest_has_what_is_granted() -> None:
    def resources(cpu: str) -> dict[str, object]:
        return {"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {"cpu": cpu, "memory": "1Gi"}}

    pod = from_manifest(
        {
            "metadata": {"name": "web"},
            "spec": {"containers": [{"name": name, "resources": resources("2")} for name in "ab"]},
            "status": {
                "qosClass": "Guaranteed",
                "conditions": [{"type": "PodResizePending", "reason": "Deferred", "status": "True"}],
                "containerStatuses": [
                    {
                        "name": "a",
                        "resources": resources("1"),
                        "allocatedResources": {"cpu": "1", "memory": "1Gi"},
                    }
                ],
            },
        }
    )
    assert [(one.cpu_request, one.cpu_limit) for one in pod.containers] == [(1000, 1000), (2000, 2000)]


def test_what_a_status_says_wrongly_is_named() -> None:
    wrong = {
        "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "a"}]},
        "status": {"containerStatuses": [{"name": "a", "allocatedResources": {"cpu": "many"}}]},
    }
    with pytest.raises(ValueError, match=r"status\.containerStatuses\[0\]\.allocatedResources: cpu: 'many'"):
        from_manifest(wrong)
