"""Check the keys of a scenario against each other: unique names, and names that exist.

Called by `files` after the models have accepted the document. Every finding has the place of the
key that is wrong, so that the message can point at its line.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches
from typing import Any

from bindery.api.yamlfile import Location
from bindery.kube.objects.resources import NODES, PODS, QUEUES, Resource
from bindery.kube.objects.topology import HYPER_NODES, TOPOLOGIES
from bindery.scenario import pod_specs, raw_objects
from bindery.scenario.fields import MOST_NODES, MOST_PODS, expand
from bindery.scenario.format import ConfigurationOverrides, Scenario
from bindery.scenario.given_nodes import CHANGEABLE
from bindery.scenario.jobs import ScenarioJob, ScenarioPod
from bindery.scenario.naming import group_keys, pod_keys, pod_names
from bindery.scenario.nodes import HyperNode, ScenarioNode, Topology
from bindery.scenario.queues import ScenarioQueue
from bindery.scenario.shares import shares_by_hami
from bindery.scenario.states import STATE_NAMES

Finding = tuple[Location, str]


def check(scenario: Scenario) -> list[Finding]:
    """Return all findings about the keys of `scenario`."""
    too_many = list(_sizes(scenario))
    if too_many:  # all else would take as long as there are names
        return too_many
    return [
        *_duplicates(scenario),
        *_priorities(scenario),
        *_events(scenario),
        *_expected(scenario),
        *_numa(scenario),
        *_usage(scenario),
        *_raw_objects_of(scenario),
        *_pod_specs(scenario),
    ]


def _sizes(scenario: Scenario) -> Iterator[Finding]:
    nodes, pods = len(scenario.objects_of(NODES)), len(scenario.objects_of(PODS))
    if nodes > MOST_NODES or pods > MOST_PODS:
        yield ("objects",), f"a scenario has at most {MOST_NODES:,} nodes and {MOST_PODS:,} pods"
        return
    for index, node in enumerate(scenario.nodes):
        nodes += node.count
        if nodes > MOST_NODES:
            yield ("nodes", index, "count"), f"a scenario has at most {MOST_NODES:,} nodes"
            return
    for place, job in job_places(scenario):
        pods += job.count * max(job.pod_count, 1)
        if pods > MOST_PODS:
            yield (*place, "count"), f"a scenario has at most {MOST_PODS:,} pods"
            return


def _raw_objects_of(scenario: Scenario) -> Iterator[Finding]:
    for field in raw_objects.KINDS:
        key = Scenario.model_fields[field].alias or field
        for index, item in enumerate(getattr(scenario, field)):
            problem = raw_objects.problem(item, field)
            if problem is not None:
                yield (key, index), problem


def _pod_specs(scenario: Scenario) -> Iterator[Finding]:
    by_hami = shares_by_hami(scenario)
    for location, pod in pod_places(scenario):
        for inner, text in pod_specs.problems(pod, by_hami=by_hami) if pod.spec else ():
            yield (*location, *inner), text


def _numa(scenario: Scenario) -> Iterator[Finding]:
    zones: dict[str, int] = {}
    for index, node in enumerate(scenario.nodes):
        found = node.numa.zones if node.numa is not None else ()
        zones |= dict.fromkeys(expand(node.name, node.count), len(found))
        for number, zone in enumerate(found):
            if any(gpu >= node.gpu_count for gpu in zone.gpus):
                place: Location = ("nodes", index, "numa", "zones", number, "gpus")
                yield place, f"the node has {node.gpu_count} GPUs, numbered from 0"
    for job_place, job in job_places(scenario):
        for number, pod in enumerate(job.pods):
            count = zones.get(pod.node, 0)
            if any(zone >= count for zone in pod.numa):
                place = (*job_place, "pods", number, "numa")
                yield place, f"node {pod.node or '(none)'} has {count} NUMA zones, numbered from 0"


def _usage(scenario: Scenario) -> Iterator[Finding]:
    if scenario.config.usage.source == "record":
        for index, queue in enumerate(scenario.queues):
            if queue.usage:
                yield (
                    ("queues", index, "usage"),
                    "not with config.usage.source: record",
                )


def job_places(scenario: Scenario) -> list[tuple[Location, ScenarioJob]]:
    """Return every job with its place in the document, including jobs of events."""
    first: list[tuple[Location, ScenarioJob]] = [
        (("jobs", index), job) for index, job in enumerate(scenario.jobs)
    ]
    later: list[tuple[Location, ScenarioJob]] = [
        (("events", index, "job"), event.job)
        for index, event in enumerate(scenario.events)
        if event.job is not None
    ]
    return first + later


def pod_places(scenario: Scenario) -> Iterator[tuple[Location, ScenarioPod]]:
    """Yield every entry of pods, and every template of a sub-group, with its place."""
    for place, job in job_places(scenario):
        for number, pod in enumerate(job.pods):
            yield (*place, "pods", number), pod
        for number, group in enumerate(job.sub_groups):
            if group.template is not None:
                yield (*place, "subGroups", number, "template"), group.template


def plugin_places(config: ConfigurationOverrides) -> Iterator[tuple[Location, str]]:
    """Yield the place and the name of every plugin that is written in `config`."""
    for key, names in (("plugins", config.plugins), ("weights", config.weights)):
        for name in names:
            yield ("config", key, name), name
    for index, name in enumerate(config.without_plugins):
        yield ("config", "withoutPlugins", index), name


def _duplicates(scenario: Scenario) -> Iterator[Finding]:
    jobs = job_places(scenario)
    places: dict[str, list[tuple[Location, Sequence[str]]]] = {
        "node": [
            *_given(scenario, NODES),
            *(
                (("nodes", index, "name"), expand(node.name, node.count))
                for index, node in enumerate(scenario.nodes)
            ),
        ],
        "queue": _given(scenario, QUEUES) + _names("queues", scenario.queues),
        "job": [((*place, "name"), expand(job.name, job.count)) for place, job in jobs],
        "pod": [((*place, "name"), pod_names(job)) for place, job in jobs],
        "Topology": _given(scenario, TOPOLOGIES) + _names("topologies", scenario.topologies),
        "HyperNode": _given(scenario, HYPER_NODES) + _names("hyperNodes", scenario.hyper_nodes),
    }
    for kind, named in places.items():
        seen: set[str] = set()
        for location, names in named:
            again = [name for name, count in Counter(names).items() if count > 1 or name in seen]
            if again:
                yield location, f"there is another {kind} {again[0]}"
            seen.update(names)


def _names(
    key: str, entries: Sequence[ScenarioQueue | Topology | HyperNode]
) -> list[tuple[Location, Sequence[str]]]:
    return [((key, index, "name"), [each.name]) for index, each in enumerate(entries)]


def _given(scenario: Scenario, resource: Resource[Any]) -> list[tuple[Location, Sequence[str]]]:
    """Return the names of the objects of a kind; `given_objects` finds one that stands twice."""
    return [(("objects",), list({each.name for each in scenario.objects_of(resource)}))]


def _priorities(scenario: Scenario) -> Iterator[Finding]:
    for place, job in job_places(scenario):
        if scenario.priority(job.priority) is None:
            yield (*place, "priority"), f"there is no priority class {job.priority}"


def _events(scenario: Scenario) -> Iterator[Finding]:
    nodes = {name for node in scenario.nodes for name in expand(node.name, node.count)}
    given = {each.name for each in scenario.objects_of(NODES)} - nodes
    pods = _pods(scenario)
    for index, request in enumerate(scenario.bind_requests):
        yield from _unknown(("bindRequests", index, "pods"), request.pods, pods, "pod")
    for index, event in enumerate(scenario.events):
        for key in ("ungate", "delete", "fail", "succeed"):
            yield from _unknown(("events", index, key), getattr(event, key), pods, "pod")
        if event.node is not None:
            place: Location = ("events", index, "node")
            yield from _unknown((*place, "name"), [event.node.name], nodes | given, "node")
            fixed = event.node.model_fields_set - CHANGEABLE - {"name"}
            if event.node.name in given and fixed:
                key = ScenarioNode.model_fields[min(fixed)].alias or min(fixed)
                yield (*place, key), "a node under `objects` keeps it"
    for index, fault in enumerate(scenario.faults):
        if fault.pod is not None:
            yield from _unknown(("faults", index, "pod"), [fault.pod], pods, "pod")


def _expected(scenario: Scenario) -> Iterator[Finding]:
    expect, jobs = scenario.expect, set[str]()
    for job in scenario.all_jobs():
        jobs.update(expand(job.name, job.count))
    pods = _pods(scenario)
    jobs |= {*group_keys(scenario).values(), *pods}
    queues = {queue.name for queue in scenario.queues}
    queues |= {each.name for each in scenario.objects_of(QUEUES)}
    for name in expect.pods:
        yield from _unknown(("expect", "pods", name), [name], pods, "pod")
    for name in expect.queues:
        yield from _unknown(("expect", "queues", name), [name], queues, "queue")
    for key, names in (
        ("distinctNodes", expect.distinct_nodes),
        ("sameDomain", expect.same_domain),
        ("domainCounts", expect.domain_counts),
    ):
        for name in names:
            yield from _unknown(("expect", key, name), [name], jobs, "job")
    for name, count in expect.counts.items():
        place: Location = ("expect", "counts", name)
        if isinstance(count, int):
            yield from _unknown(place, [name], STATE_NAMES, "state")
            continue
        yield from _unknown(place, [name], jobs, "job")
        for state in count:
            yield from _unknown((*place, state), [state], STATE_NAMES, "state")


def _pods(scenario: Scenario) -> set[str]:
    """Return the names of all pods, by which expectations, events and faults name them."""
    of_jobs = {name for job in scenario.all_jobs() for name in pod_names(job)}
    return of_jobs.union(pod_keys(scenario).values())


def _unknown(
    location: Location, names: Sequence[str], known: Collection[str], what: str
) -> Iterator[Finding]:
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            yield location, f"there is no {what} {name}{hint}"
