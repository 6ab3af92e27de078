"""Snapshots of clusters in memory, and the plans of a scheduler that starts on them."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
import numpy as np

from bindery.api.configuration import SchedulerConfiguration
from bindery.api.yamlfile import parse
from bindery.kube.objects.bindrequests import (
    BindRequest,
    BindRequestSpec,
    BindRequestStatus,
    CommittedStatement,
)
from bindery.kube.objects.watched import KubeObject
from bindery.scenario.creation import objects_of
from bindery.scenario.files import parse_scenario
from bindery.scenario.format import Scenario
from bindery.scenario.given_objects import kinds_of
from bindery.scenario.snapshot import snapshot_text
from bindery.scheduler.commit.requests import as_stored
from bindery.scheduler.world import World

RESOURCES = {resource.type: resource for resource in kinds_of(()).values()}


class Plan(NamedTuple):
    """What one cycle decides."""

    statements: list[CommittedStatement]
    evictions: list[tuple[Any, ...]]
    jobs: Any
    """The reports: states, reasons, promised places."""
    order: Any
    kept: Any
    stages: Any
    fair_shares: Any


def wire(items: Iterable[KubeObject]) -> list[dict[str, Any]]:
    """Return `items` as the API server would send them."""
    statements: defaultdict[tuple[str, str], list[CommittedStatement]] = defaultdict(list)
    found: list[dict[str, Any]] = []
    for item in items:
        if isinstance(item, CommittedStatement):
            statements[item.metadata.namespace, item.metadata.name].append(item)
        else:
            found.append(_object(item))
    return found + [_object(_request(parts)) for parts in statements.values()]


def _object(item: KubeObject) -> dict[str, Any]:
    resource = RESOURCES[type(item)]
    fields = msgspec.to_builtins(item)
    fields.pop("unreadable", None)
    return {"apiVersion": resource.api_version, "kind": resource.kind, **fields}


def _request(parts: list[CommittedStatement]) -> BindRequest:
    first = parts[0]
    statuses = [msgspec.structs.replace(each.status, id=each.spec.id) for each in parts]
    return BindRequest(
        metadata=first.metadata,
        spec=BindRequestSpec(
            statements=[each.spec for each in parts],
            withdrawn=[each.spec.id for each in parts if each.is_withdrawn],
            backoff_limit=first.backoff_limit,
            fencing_token=first.fencing_token,
        ),
        status=BindRequestStatus(statements=statuses),
    )


def written(
    items: Iterable[KubeObject], configuration: SchedulerConfiguration, now: float
) -> Scenario:
    """Return the snapshot of `items`, written to a text and read from it."""
    at = datetime.fromtimestamp(now, UTC)
    (document,) = parse(snapshot_text(wire(items), configuration, at), "snapshot.yaml")
    return parse_scenario(document)


def plan(items: Iterable[KubeObject], configuration: SchedulerConfiguration, now: float) -> Plan:
    """Return what a scheduler plans that starts on `items`."""
    engine = World(items, configuration, now).engine
    statements = [as_stored(draft) for draft in engine.cycle()]
    report = engine.report
    evictions = [
        (each.task.uid, each.reason, each.preemptor, each.moves_to) for each in report.evictions
    ]
    return Plan(
        statements,
        evictions,
        report.jobs,
        report.order,
        np.asarray(report.kept).tolist(),
        report.stages,
        report.fair_shares,
    )


def both_plans(
    items: Iterable[KubeObject], configuration: SchedulerConfiguration, now: float
) -> tuple[Plan, Plan]:
    """Return the plan of a scheduler on `items`, and of one on their snapshot."""
    items = list(items)
    scenario = written(items, configuration, now)
    again = scenario.config.to_configuration()
    assert again == configuration
    assert scenario.now.timestamp() == now
    return plan(items, configuration, now), plan(objects_of(scenario), again, now)
