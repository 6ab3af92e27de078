"""Leave out of a snapshot what no scenario can express, and name it.

Used by `cluster`; pure. One object that cannot be read stops nothing else.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, TypeVar

import msgspec
from pydantic import ValidationError

from bindery.api import quantity
from bindery.api.quantity import QuantityError
from bindery.api.yamlfile import Location, describe, format_location
from bindery.kube.objects.podtemplates import PodTemplateError, pod_spec
from bindery.kube.objects.snapshot import ClusterSnapshot
from bindery.kube.objects.watched import Node, Pod, PodGroup, SubGroup
from bindery.scenario.capture.nodes import Entry
from bindery.scenario.checks import check
from bindery.scenario.format import Scenario
from bindery.scheduler.model.resources import pod_amounts

_MOST_PASSES: Final = 50
"""Each pass leaves out what refers to something that the pass before it has left out."""
Item = TypeVar("Item", Node, Pod)
_KINDS: Final = {"nodes": "node", "queues": "queue", "jobs": "job"}


def readable(snapshot: ClusterSnapshot) -> tuple[ClusterSnapshot, list[str]]:
    """Return `snapshot` without objects whose amounts cannot be read, and a line about each."""
    found: list[str] = []
    nodes = tuple(_kept(snapshot.nodes, found))
    pods = tuple(_kept(snapshot.pods, found))
    groups = tuple(_with_readable_templates(group, found) for group in snapshot.groups)
    if not found:
        return snapshot, found
    return replace(snapshot, nodes=nodes, pods=pods, groups=groups), found


def valid(scenario: Entry) -> tuple[Entry, list[str]]:
    """Return `scenario` without the parts that its own reader refuses, and a line about each."""
    found: list[str] = []
    for _ in range(_MOST_PASSES):
        findings = _findings(scenario)
        if not findings:
            break
        refused: dict[Location, str] = {}
        for place, problem in findings:
            refused.setdefault(place[:2], f"{_name(scenario, place)} is left out: {problem}")
        found += refused.values()
        scenario = {key: _without(key, value, refused) for key, value in scenario.items()}
        scenario = {key: value for key, value in scenario.items() if value is not None}
    return scenario, found


def _kept(items: Iterable[Item], found: list[str]) -> Iterable[Item]:
    for item in items:
        try:
            if isinstance(item, Pod):
                pod_amounts(item.spec)
            else:
                for resource, text in (item.status.allocatable or {}).items():
                    quantity.parse(text, resource)
        except QuantityError as error:
            meta = item.metadata
            name = f"pod {meta.namespace}/{meta.name}" if meta.namespace else f"node {meta.name}"
            found.append(f"{name} is left out: {error}")
        else:
            yield item


def _with_readable_templates(group: PodGroup, found: list[str]) -> PodGroup:
    parts = [_with_readable_template(part, group, found) for part in group.spec.sub_groups]
    if parts == group.spec.sub_groups:
        return group
    spec = msgspec.structs.replace(group.spec, sub_groups=parts)
    return msgspec.structs.replace(group, spec=spec)


def _with_readable_template(part: SubGroup, group: PodGroup, found: list[str]) -> SubGroup:
    if part.template is None:
        return part
    try:
        pod_amounts(pod_spec(part.template))
    except (PodTemplateError, QuantityError) as error:
        name = f"{group.metadata.namespace}/{group.metadata.name}"
        found.append(
            f"the template of sub-group {part.name} of PodGroup {name} is left out: {error}"
        )
        return msgspec.structs.replace(part, template=None)
    return part


def _findings(scenario: Entry) -> list[tuple[Location, str]]:
    """Return what the reader of scenarios refuses, with its place."""
    try:
        return [
            (place, _described(place, message))
            for place, message in check(Scenario.model_validate(scenario))
        ]
    except ValidationError as error:
        return [(each["loc"], _described(each["loc"], describe(each))) for each in error.errors()]


def _described(place: Location, message: str) -> str:
    return f"{format_location(place[2:])}: {message}" if place[2:] else message


def _name(scenario: Entry, place: Location) -> str:
    """Return the name of the object that the entry at `place` describes."""
    key = str(place[0])
    entry = scenario[key][place[1]] if len(place) > 1 else {}
    of_object = entry.get("metadata", {}) if isinstance(entry, dict) else {}
    name = (entry.get("name") or of_object.get("name")) if isinstance(entry, dict) else None
    return f"{_KINDS.get(key, key)} {name}" if name else format_location(place[:2])


def _without(key: str, value: object, refused: dict[Location, str]) -> object:
    if (key,) in refused:
        return None
    if isinstance(value, list):
        return [item for index, item in enumerate(value) if (key, index) not in refused]
    if isinstance(value, dict):
        return {name: item for name, item in value.items() if (key, name) not in refused}
    return value
