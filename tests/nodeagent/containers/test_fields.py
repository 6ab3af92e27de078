"""Every field of the pod API is carried out, passed to the runtime, or refused with a reason."""

import json
from typing import Any

import pytest

from bindery.nodeagent.containers.fields import RULES, Fate, FieldRule, refusals
from bindery.nodeagent.containers.podspec import RunPodSpec
from devcluster.plane import ControlPlane
from tests.nodeagent.containers.fieldtable import DOCUMENT, written
from tests.nodeagent.containers.podfields import of_schema, of_struct, with_value

REFUSED = [rule for rule in RULES if rule.fate is Fate.REFUSED]
BY_PATH = {rule.path: rule for rule in RULES if rule.values is None}


@pytest.fixture(scope="module")
def published(control_plane: ControlPlane) -> list[str]:
    """The fields of `PodSpec`, from the schema of the API server."""
    document: Any = json.loads(control_plane.kubectl("get", "--raw", "/openapi/v3/api/v1"))
    return of_schema(document)


def rule_of(path: str) -> FieldRule | None:
    """Return the rule for a field of the spec: its own, or the nearest above it."""
    names = path.split(".")
    if names[0] == "initContainers":
        names[0] = "containers"
    above = (".".join(names[:end]) for end in range(len(names), 0, -1))
    return next((BY_PATH[each] for each in above if each in BY_PATH), None)


@pytest.mark.e2e
def test_no_published_field_is_forgotten(published: list[str]) -> None:
    """A field that is carried out or passed is read, too."""
    read = of_struct(RunPodSpec)

    def is_known(path: str) -> bool:
        rule = rule_of(path)
        if rule is None:
            return False
        return rule.fate in (Fate.REFUSED, Fate.ELSEWHERE) or path in read

    assert len(published) > 500
    assert [path for path in published if not is_known(path)] == []


@pytest.mark.e2e
def test_every_published_field_with_a_refusal_is_refused(published: list[str]) -> None:
    refused = [path for path in published if (rule := rule_of(path)) and rule.fate is Fate.REFUSED]

    assert refused
    assert [path for path in refused if not list(refusals(with_value(path, "x")))] == []


@pytest.mark.e2e
def test_every_rule_is_about_a_published_field(published: list[str]) -> None:
    every = {".".join(path.split(".")[:end]) for path in published for end in range(1, 12)}
    gates = {  # not served by default
        *("schedulingGroup", "volumes.emptyDir.stickyBit"),
        "containers.volumeMounts.bindMountOptions",
    }

    assert {rule.path for rule in RULES} - every - gates == set()


@pytest.mark.parametrize("rule", REFUSED, ids=lambda rule: rule.path)
def test_the_reason_of_a_refusal_names_the_field(rule: FieldRule) -> None:
    value = rule.values[0] if rule.values is not None else "x"

    assert list(refusals(with_value(rule.path, value))) == [f"{rule.path}: {rule.note}"]


@pytest.mark.parametrize("rule", REFUSED, ids=lambda rule: rule.path)
def test_a_refusal_has_a_reason(rule: FieldRule) -> None:
    assert rule.note


@pytest.mark.parametrize(
    "spec",
    [
        {"hostUsers": True},
        {"containers": [{"volumeMounts": [{"name": "v", "recursiveReadOnly": "Disabled"}]}]},
        {"containers": [{"resizePolicy": [{"restartPolicy": "NotRequired"}]}]},
        {"ephemeralContainers": [], "volumes": [{"name": "v", "emptyDir": {}}]},
    ],
)
def test_what_asks_for_nothing_is_not_refused(spec: dict[str, Any]) -> None:
    assert list(refusals(spec)) == []


def test_fields_of_init_containers_are_refused_as_those_of_containers() -> None:
    hook = {"preStop": {"tcpSocket": {"port": 1}}}
    spec = {"initContainers": [{"lifecycle": hook}]}

    (found,) = refusals(spec)

    assert found.startswith("initContainers.lifecycle.preStop.tcpSocket: ")


def test_the_table_of_the_page_is_that_of_the_code() -> None:
    text = DOCUMENT.read_text()

    assert written(text) == text, "python -m tests.nodeagent.containers.fieldtable"
