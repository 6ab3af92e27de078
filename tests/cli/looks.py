"""Looks at clusters that a scenario describes, so that a test can say its cluster in YAML."""

import textwrap
from collections.abc import Iterable
from typing import TypeVar

from bindery.api.yamlfile import parse
from bindery.cli.live import Look
from bindery.kube.objects import (
    BindRequest,
    KubeObject,
    Node,
    Pod,
    PodGroup,
    PriorityClass,
    Queue,
)
from bindery.kube.store import Change
from bindery.scenario.cluster import ScenarioCluster
from bindery.scenario.files import parse_scenario
from bindery.scenario.format import Scenario

Item = TypeVar("Item", bound=KubeObject)


def scenario_of(text: str) -> Scenario:
    (document,) = parse(textwrap.dedent(text), "inline.yaml")
    return parse_scenario(document)


def look_at(scenario: Scenario) -> Look:
    """Return the cluster with which `scenario` begins, as the command line sees one."""
    changes: list[Change[KubeObject]] = []
    ScenarioCluster(scenario, changes.append).populate()
    items = [change.object for change in changes]
    return Look(
        pods=_of(Pod, items),
        nodes=_of(Node, items),
        groups=_of(PodGroup, items),
        queues=_of(Queue, items),
        requests=_of(BindRequest, items),
        priority_classes=_of(PriorityClass, items),
    )


def _of(kind: type[Item], items: Iterable[KubeObject]) -> tuple[Item, ...]:
    return tuple(item for item in items if isinstance(item, kind))
