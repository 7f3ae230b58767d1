"""A container's identity, and what becomes of it: a table of every case, without a kernel."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hook import decision
from hook.config import Config
from hook.decision import Subject
from hook.state import State

UID = "0a1b2c3d-0000-4000-8000-00000000000a"
STATIC = "0123456789abcdef0123456789abcdef"
POD = f"/kubepods/burstable/pod{UID}/c1"
CRIO_POD = f"/kubepods/burstable/pod{UID}/crio-c1"
SLICES = "/kubepods.slice/kubepods-besteffort.slice"
PLAIN = "/libpod_parent/libpod-c1"
CRI = "io.kubernetes.cri"
OPEN, CLOSED = Config(), Config(closed=True)


def with_annotations(path: str, annotations: dict[str, str], config: Config = OPEN) -> Subject:
    return decision.identify(State("c1", 42, annotations), path, config)


def of_containerd(**more: str) -> dict[str, str]:
    known = {"container-name": "app", "sandbox-uid": UID, "sandbox-namespace": "shop"}
    known["container-type"] = "container"
    known |= {key.replace("_", "-"): value for key, value in more.items()}
    return {f"{CRI}.{key}": value for key, value in known.items()}


def of_crio(**more: str) -> dict[str, str]:
    known = {"io.kubernetes.pod.uid": UID, "io.kubernetes.pod.namespace": "shop"}
    known |= {"io.kubernetes.container.name": "app", "io.kubernetes.cri-o.ContainerType": "container"}
    return known | more


@pytest.mark.parametrize(
    ("path", "annotations"),
    [(POD, of_containerd()), (CRIO_POD, of_crio())],
    ids=["containerd", "CRI-O"],
)
def test_a_pods_container(path: str, annotations: dict[str, str]) -> None:
    found = with_annotations(path, annotations)
    assert (found.folder, found.key, found.container) == ("pods", UID, "app")
    assert (found.qos, found.problem, found.exempt, found.sandbox) == ("Burstable", "", False, False)


@pytest.mark.parametrize(
    ("path", "qos"),
    [
        (f"/kubepods/pod{UID}/c1", "Guaranteed"),
        (f"/kubepods/besteffort/pod{UID}/c1", "BestEffort"),
        (f"{SLICES}/kubepods-besteffort-pod{UID.replace('-', '_')}.slice/crio-c1.scope", "BestEffort"),
    ],
)
def test_the_class_comes_from_the_path(path: str, qos: str) -> None:
    found = with_annotations(path, of_containerd())
    assert (found.qos, found.key) == (qos, UID)


def test_a_named_floor_outside_kubernetes() -> None:
    found = with_annotations(PLAIN, {"j10ce.io/floor": "web-1"})
    assert (found.folder, found.key, found.qos, found.problem) == ("floors", "web-1", "Plain", "")


def test_nothing_is_named_outside_kubernetes() -> None:
    found = with_annotations(PLAIN, {})
    assert (found.folder, found.key, found.problem) == ("", "", "")


@pytest.mark.parametrize(
    "name", ["", "../pods", "a/b", "/etc/passwd", "A", "-a", "a-", "a" * 64, "a.b", "a\0", "é", "a\n"]
)
def test_a_floors_name_is_a_label_or_refused(name: str) -> None:
    found = with_annotations(PLAIN, {"j10ce.io/floor": name})
    assert found.folder == ""
    assert found.problem == "annotation j10ce.io/floor is no floor's name"


@given(st.text())
def test_a_floors_name_never_leaves_its_folder(name: str) -> None:
    if decision.is_label(name):
        assert name.isascii()
        assert not set(name) & set("/.\0")
        assert 0 < len(name) <= 63


def test_a_pods_floor_annotation_is_not_heeded() -> None:
    found = with_annotations(POD, of_containerd() | {"j10ce.io/floor": "../../x"})
    assert (found.folder, found.key, found.problem) == ("pods", UID, "")


def test_its_own_runtime_naming_another_pod_leaves_what_is_for_any() -> None:
    found = with_annotations(POD, of_containerd(sandbox_uid="another"))
    assert found.problem == f"annotation {CRI}.sandbox-uid is not the pod uid of its cgroup"
    assert (found.folder, found.key, found.container, found.qos) == ("pods", UID, "", "Burstable")


FORGED = {
    "container-name": "other",
    "container-type": "sandbox",
    "sandbox-namespace": "kube-system",
    "sandbox-uid": "x",
}


@pytest.mark.parametrize(
    ("path", "honest", "forged"),
    [
        (POD, of_containerd(), of_crio(**{"io.kubernetes.pod.uid": "x"})),
        (POD, of_containerd(), of_crio(**{"io.kubernetes.cri-o.ContainerType": "sandbox"})),
        (POD, of_containerd(), {"io.kubernetes.cri-o.SandboxID": "x", "io.container.manager": "cri-o"}),
        *[(CRIO_POD, of_crio(), {f"{CRI}.{key}": value}) for key, value in FORGED.items()],
        (CRIO_POD.replace("crio-c1", "crio-c1.scope"), of_crio(), of_containerd(sandbox_uid="x")),
    ],
)
def test_what_a_pod_adds_of_the_other_runtimes_changes_nothing(
    path: str, honest: dict[str, str], forged: dict[str, str]
) -> None:
    def facts(annotations: dict[str, str]) -> list[object]:
        found = with_annotations(path, annotations, CLOSED)
        return [getattr(found, name) for name in Subject.__slots__]

    assert facts(forged | honest) == facts(honest)


def test_a_runtime_that_does_not_name_the_container() -> None:
    found = with_annotations(POD, {})
    assert (found.folder, found.key, found.container, found.problem) == ("pods", UID, "", "")


def test_a_sandbox_is_known_by_its_own_runtime_and_its_path() -> None:
    sandbox = of_containerd(container_type="sandbox")
    crio = of_crio(**{"io.kubernetes.cri-o.ContainerType": "sandbox"})
    assert with_annotations(POD, sandbox).sandbox
    assert with_annotations(CRIO_POD, crio).sandbox
    for path in (PLAIN, "/plain/c1"):
        assert not with_annotations(path, sandbox | crio).sandbox


def test_an_image_of_podmans_only_names_a_floor() -> None:
    """podman copies an image's annotations: those of Kubernetes' runtimes say nothing there."""
    found = with_annotations(PLAIN, of_containerd(container_type="sandbox") | {"j10ce.io/floor": "web"})
    assert (found.folder, found.key, found.problem, found.exempt) == ("floors", "web", "", False)


OWN_UID = "/kubepods/burstable/podmy-etcd/c1"
NO_QOS = "/k8s.io/c1"


@pytest.mark.parametrize(
    ("path", "annotations"),
    [
        (OWN_UID, {}),
        (NO_QOS, of_containerd()),
        ("/system.slice/crio-c1.scope", {}),
        ("/system.slice/cri-containerd-c1.scope", {}),
    ],
)
def test_a_pod_whose_path_does_not_show_it_picks_no_floor(path: str, annotations: dict[str, str]) -> None:
    found = with_annotations(path, annotations | {"j10ce.io/floor": "web"})
    assert found.problem == f"no pod's uid is in its cgroup's path {path}"
    assert (found.folder, found.key, found.qos, found.sandbox) == ("", "", "", False)


SYSTEM = of_containerd(sandbox_namespace="kube-system")
SYSTEM_CRIO = of_crio(**{"io.kubernetes.pod.namespace": "kube-system"})


@pytest.mark.parametrize(
    ("path", "annotations", "exempt"),
    [
        (POD, of_containerd(), False),
        (POD, SYSTEM, True),
        (POD, of_containerd(sandbox_namespace="j10ce-system"), True),
        (POD, of_containerd(sandbox_namespace="ours"), True),
        (CRIO_POD, SYSTEM_CRIO, True),
        (POD, of_containerd() | {"io.kubernetes.pod.namespace": "kube-system"}, False),
        (CRIO_POD, of_crio() | {f"{CRI}.sandbox-namespace": "kube-system"}, False),
        (PLAIN, SYSTEM, False),
        (f"/kubepods/pod{STATIC}/c1", of_containerd(sandbox_uid=STATIC), True),
        (OWN_UID, SYSTEM | {f"{CRI}.sandbox-uid": "my-etcd"}, True),
        (OWN_UID, of_containerd(), False),
        (NO_QOS, SYSTEM, True),
        (NO_QOS, of_containerd() | {"io.kubernetes.pod.namespace": "kube-system"}, False),
        ("/system.slice/crio-c1.scope", SYSTEM_CRIO, True),
    ],
)
def test_who_is_exempt(path: str, annotations: dict[str, str], exempt: bool) -> None:
    config = Config(closed=True, exempt=("ours",))
    assert with_annotations(path, annotations, config).exempt is exempt


@pytest.mark.parametrize(
    ("annotations", "exempt"),
    [
        ({}, False),
        (of_containerd(), False),
        (SYSTEM, True),
        (SYSTEM_CRIO, True),
        (of_containerd() | SYSTEM_CRIO, False),
        (of_crio() | SYSTEM, False),
        (of_containerd(sandbox_uid=STATIC), True),
        (of_crio() | {f"{CRI}.sandbox-uid": STATIC}, False),
    ],
)
def test_who_is_exempt_while_the_cgroup_is_not_known(annotations: dict[str, str], exempt: bool) -> None:
    assert decision.unplaced(State("c1", 42, annotations), CLOSED).exempt is exempt


POD_GROUP = f"/kubepods/burstable/pod{UID}"
IN_POD = f"{POD_GROUP}/c1"


@pytest.mark.parametrize(
    ("path", "parents", "planned", "right"),
    [
        (PLAIN, {"/libpod_parent"}, "/libpod_parent", True),
        (PLAIN, {"/system.slice"}, "/libpod_parent", False),
        (PLAIN, {"/libpod_parent"}, "", False),
        (PLAIN, {"/libpod_parent", "/x"}, "/libpod_parent", False),
        (PLAIN, {"/libpod_parent/x"}, "/libpod_parent", False),
        (PLAIN, set(), "/libpod_parent", False),
        (IN_POD, {POD_GROUP}, "", True),
        (IN_POD, {POD_GROUP, f"/kubepods/pod{UID}"}, "", True),
        (IN_POD, {POD_GROUP}, POD_GROUP, True),
        (IN_POD, {POD_GROUP}, "/kubepods/burstable", False),
        (IN_POD, {f"{POD_GROUP}/inner"}, "", False),
        (IN_POD, {POD_GROUP, "/x"}, "", False),
    ],
)
def test_cgroups_above_are_those_that_were_planned(
    path: str, parents: set[str], planned: str, right: bool
) -> None:
    why = decision.misplaced(with_annotations(path, {}), parents, planned)
    assert (why == "") is right
    assert right or "those above its own are left out" in why


def subject(*, exempt: bool = False, strict: bool = False) -> Subject:
    made = Subject({decision.FAIL_ANNOTATION: "closed"} if strict else {})
    made.exempt = exempt
    return made


@pytest.mark.parametrize(
    ("config", "made", "problems", "missed", "code"),
    [
        (OPEN, subject(), [], "", 0),
        (CLOSED, subject(), [], "", 0),
        (OPEN, subject(), ["refused"], "", 0),
        (CLOSED, subject(), ["refused"], "", 1),
        (OPEN, subject(strict=True), ["refused"], "", 1),
        (CLOSED, subject(exempt=True), ["refused"], "", 0),
        (OPEN, subject(exempt=True, strict=True), ["refused"], "", 0),
        (OPEN, subject(), [], "no entry", 0),
        (CLOSED, subject(), [], "no entry", 0),
        (OPEN, subject(strict=True), [], "no entry", 1),
        (CLOSED, subject(), ["damaged"], "damaged", 1),
    ],
)
def test_what_becomes_of_it(
    config: Config, made: Subject, problems: list[str], missed: str, code: int
) -> None:
    verdict = decision.judge(made, config, problems, missed)
    assert verdict.code == code
    assert bool(verdict.line) == bool(problems or (missed and code))
    assert verdict.missed == (missed or "".join(problems))
    if verdict.line:
        assert ("must not start" in verdict.line) == bool(code)


def test_an_annotation_never_relaxes() -> None:
    for value in ("open", "", "Closed", "closed "):
        made = Subject({decision.FAIL_ANNOTATION: value})
        assert decision.judge(made, CLOSED, ["refused"], "").code == 1


@given(st.text())
def test_a_line_is_one_line_of_ascii(text: str) -> None:
    line = decision.one_line(text)
    assert line.isascii()
    assert line.isprintable()
    assert len(line) <= 504


@given(st.text(), st.text(), st.text())
def test_a_marker_is_four_lines(identity: str, container: str, reason: str) -> None:
    made = subject()
    made.container = container
    lines = decision.marker(made, identity, reason).split("\n")
    assert [line.partition("\t")[0] for line in lines] == ["id", "pod", "container", "reason", ""]


def test_a_marker_is_named_by_what_stays_when_a_container_starts_again() -> None:
    assert decision.marker_name(with_annotations(POD, of_containerd()), "c1") == f"{UID}.app"
    assert decision.marker_name(with_annotations(POD, {}), "c1") == UID
    assert decision.marker_name(with_annotations(PLAIN, {}), "c1") == "c1"


@given(st.text())
def test_a_markers_name_never_leaves_its_folder(container: str) -> None:
    found = with_annotations(POD, of_containerd(container_name=container))
    assert not set(decision.marker_name(found, "c1")) & set("/\0")
    assert decision.marker_name(found, "c1")[0] != "."
