"""Snapshots of clusters in memory, and the plans of a scheduler that starts on them."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pprint import pformat
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
from bindery.kube.objects.watched import KubeObject, Pod
from bindery.scenario.binding import bind_requests
from bindery.scenario.creation import objects_of
from bindery.scenario.events import Faults
from bindery.scenario.files import parse_scenario
from bindery.scenario.format import Scenario
from bindery.scenario.given_objects import kinds_of
from bindery.scenario.hiding.pseudonyms import PSEUDONYM
from bindery.scenario.planning import Planner
from bindery.scenario.snapshot import hidden_snapshot_text, snapshot_text
from bindery.scheduler.commit.requests import as_stored
from bindery.scheduler.world import World

NOW = 1_750_000_000.5
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


def played(scenario: Scenario, cycles: int) -> Planner:
    """Return the planner of `scenario` after some cycles and the steps between them."""
    planner, faults = Planner(scenario, Faults(())), Faults(())
    cluster = planner.cluster
    cluster.populate()
    for _ in range(cycles):
        planner.plan()
        cluster.release()
        cluster.start_pods()
        bind_requests(cluster, faults)
        cluster.numa.publish()
        cluster.clock.now += 1
    return planner


def objects_in(planner: Planner) -> list[KubeObject]:
    """Return the objects that the API server of a planner holds."""
    cluster = planner.engine.cluster
    stored = [item for kind in RESOURCES for item in cluster.observers.every(kind)]
    return [*stored, *cluster.holds.statements.values()]


def promised(pod: Pod, node: str) -> Pod:
    """Return `pod` with room promised on `node`, as the scheduler writes it."""
    status = msgspec.structs.replace(pod.status, nominated_node_name=node)
    return pod if pod.spec.node_name else msgspec.structs.replace(pod, status=status)


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
    fields = msgspec.json.decode(msgspec.json.encode(item))
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


class ShownPlans(NamedTuple):
    """Two plans as text, with the names of the given objects."""

    direct: str
    """On the objects."""
    hidden: str
    """On their snapshot without names."""


def shown_plans(
    items: Iterable[KubeObject], configuration: SchedulerConfiguration, now: float
) -> ShownPlans:
    """Return the plan of a scheduler on `items`, and of one on their snapshot without names."""
    items = list(items)
    at = datetime.fromtimestamp(now, UTC)
    text, names = hidden_snapshot_text(wire(items), configuration, at)
    (document,) = parse(text, "snapshot.yaml")
    scenario = parse_scenario(document)
    direct = plan(items, configuration, now)
    of_hidden = plan(objects_of(scenario), scenario.config.to_configuration(), now)
    return ShownPlans(_shown(direct, {}), _shown(of_hidden, names))


_MESSAGE = re.compile(r"(?<=message=')[^']*")
"""Its parts are in the order of texts, in which words that stay are between others."""
_MADE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
"""UUIDs that are made from names, such as those of GPU groups."""


def _shown(plan: Plan, names: Mapping[str, str]) -> str:
    """Return `plan` as text, with words for pseudonyms, and numbers for UUIDs made from names."""
    text = re.sub(r"[^ '\"]*\.hidden/", "", pformat(plan, width=100))
    text = PSEUDONYM.sub(lambda found: names.get(found[0], found[0]), text)
    text = _MESSAGE.sub(lambda found: ", ".join(sorted(re.split("[,:;] ", found[0]))), text)
    text = re.sub(r"(?<=the regular expression )[^']*", "", text)
    text = re.sub(r"(?<=Statement\(metadata=Meta\(name=')[^']*", "", text)  # with parts of a UID
    made: dict[str, int] = {}
    return _MADE.sub(lambda found: str(made.setdefault(found[0], len(made))), text)
