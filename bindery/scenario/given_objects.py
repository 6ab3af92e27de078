"""The key `objects` of a scenario: objects of a cluster as Kubernetes writes them.

`files` reports mistakes; `creation` reads the objects. They are decoded as the watches decode them:
an object with unreadable fields is left out, or kept as far as it holds resources. Pure.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import msgspec

from bindery.api.configuration import (
    DEFAULT_PLUGINS,
    PluginConfiguration,
    SchedulerConfiguration,
)
from bindery.api.spelling import meant
from bindery.api.yamlfile import Location
from bindery.kube.objects.bindrequests import BindRequest
from bindery.kube.objects.claims import RESOURCE_CLAIM_TEMPLATES
from bindery.kube.objects.resources import (
    BIND_REQUESTS,
    CONFIG_MAPS,
    POD_GROUPS,
    PODS,
    Resource,
)
from bindery.kube.objects.watched import ConfigMap, KubeObject
from bindery.kube.objects.workloads import WORKLOAD_JOBS
from bindery.kube.watches.decoding import LenientDecoder
from bindery.kube.watches.store import Malformed
from bindery.scenario.fields import AnyObject
from bindery.scenario.format import Scenario
from bindery.scenario.raw_objects import completed, with_text_amounts
from bindery.scheduler.cache.observers import WATCHED
from bindery.scheduler.plugins import registry
from bindery.scheduler.usage.codec import readable
from bindery.scheduler.usage.place import KEY, record_name
from bindery.scheduler.usage.source import UsageSoFar

Kinds = Mapping[tuple[str, str], Resource[Any]]
"""By apiVersion and kind."""

_LATE: Final = (POD_GROUPS, PODS, BIND_REQUESTS)
"""Kinds that refer to others, and are created after them."""


@dataclass(frozen=True)
class GivenObjects:
    """The objects of a scenario."""

    items: tuple[KubeObject, ...] = ()
    """In the order of their creation in a cluster; Statements in place of BindRequests."""
    left_out: tuple[str, ...] = ()
    """A line about each object that could not be read, or only in part."""
    config_maps: tuple[ConfigMap, ...] = ()
    """Records of past usage and of the history; others are not used."""

    def record(self, namespace: str, name: str, key: str) -> str | None:
        """Return the text of a record of the scheduler; None without the record."""
        for item in self.config_maps:
            if (item.metadata.namespace, item.metadata.name) == (namespace, name):
                return (item.data or {}).get(key, "")
        return None


def kinds_of(plugins: Sequence[PluginConfiguration]) -> Kinds:
    """Return the kinds that a scheduler with `plugins` reads, in the order of their creation.

    Raises:
        PluginConfigurationError: a plugin cannot be used.
    """
    others = [plugin for plugin in plugins if plugin.name not in DEFAULT_PLUGINS]
    watched = (*_watched_by_default(), *(registry.load(others).watched_resources()))
    first = [resource for resource in (*WATCHED, *watched) if resource not in _LATE]
    every = (*first, RESOURCE_CLAIM_TEMPLATES, CONFIG_MAPS, *_LATE, WORKLOAD_JOBS)
    return {(each.api_version, each.kind): each for each in every}


def problems(scenario: Scenario, kinds: Kinds) -> Iterator[tuple[Location, str]]:
    """Yield each object of an unknown kind, without a name, or with the name of another one."""
    seen: set[tuple[str, str, str]] = set()
    for index, item in enumerate(scenario.objects):
        found = _problem(item, kinds)
        if found is not None:
            location, text = found
            yield ("objects", index, *location), text
            continue
        resource = kinds[item["apiVersion"], item["kind"]]
        meta = completed(item, resource, 0.0)["metadata"]
        name = (resource.kind, str(meta.get("namespace", "")), meta["name"])
        if name in seen:
            title = "/".join(part for part in name[1:] if part)
            yield ("objects", index, "metadata", "name"), f"there is another {name[0]} {title}"
        seen.add(name)


def given_objects(scenario: Scenario) -> GivenObjects:
    """Return the objects under the key `objects`, as the watches would give them."""
    if not scenario.objects:
        return GivenObjects()
    kinds = kinds_of(scenario.config.to_configuration().plugins)
    by_kind: defaultdict[tuple[str, str], list[AnyObject]] = defaultdict(list)
    for item in scenario.objects:
        by_kind[item["apiVersion"], item["kind"]].append(item)
    items: list[KubeObject] = []
    left_out: list[str] = []
    for key, resource in kinds.items():
        found, lines = _decoded(by_kind[key], resource, scenario.now.timestamp())
        items += found
        left_out += lines
    return GivenObjects(
        tuple(_in_statements(items)),
        tuple(left_out),
        tuple(item for item in items if isinstance(item, ConfigMap)),
    )


@cache
def _watched_by_default() -> tuple[Resource[Any], ...]:
    shipped = [PluginConfiguration(name=name) for name in DEFAULT_PLUGINS]
    return registry.load(shipped).watched_resources()


def _problem(item: AnyObject, kinds: Kinds) -> tuple[Location, str] | None:
    """Return the place in `item` of its first mistake, and a text about it."""
    for key in ("apiVersion", "kind"):
        if not isinstance(item.get(key), str):
            return (key,) if key in item else (), f"{key}: a text is expected"
    if (item["apiVersion"], item["kind"]) not in kinds:
        return _unknown_kind(item["apiVersion"], item["kind"], kinds)
    meta = item.get("metadata")
    if not isinstance(meta, dict):
        return ("metadata",), "an object is expected"
    if not isinstance(meta.get("name"), str) or not meta["name"]:
        return ("metadata", "name"), "this key is required"
    try:
        msgspec.json.encode(item)
    except (ArithmeticError, RecursionError, TypeError, ValueError) as error:
        return (), f"it cannot be written as JSON: {error}"
    return None


def _unknown_kind(version: str, kind: str, kinds: Kinds) -> tuple[Location, str]:
    versions = [known for known, name in kinds if name == kind]
    if versions:
        return ("apiVersion",), f"{version}: of a {kind}, {' or '.join(versions)} is read"
    names = sorted({name for _, name in kinds})
    near = meant(kind, names)
    hint = f"did you mean {near}?" if near else f"expected one of {', '.join(names)}"
    return ("kind",), f"the scheduler reads no {kind}; {hint}"


def _decoded(
    found: Sequence[AnyObject], resource: Resource[Any], now: float
) -> tuple[list[KubeObject], list[str]]:
    """Return the objects `found`, of one kind, and a line about each that cannot be read."""
    items: list[KubeObject] = []
    left_out: list[str] = []
    whole = [completed(item, resource, now) for item in found]
    for raw, item in zip(whole, _as_watched(whole, resource), strict=True):
        if not isinstance(item, Malformed):
            items.append(item)
            continue
        # People write amounts as numbers, which the API server stores as text.
        (again,) = _as_watched([with_text_amounts(raw)], resource)
        if not isinstance(again, Malformed):
            items.append(again)
            continue
        name = "/".join(part for part in (again.meta.namespace, again.meta.name) if part)
        kept = again.kept(None)
        text = "is left out" if kept is None else "is read in part"
        left_out.append(f"{resource.kind} {name} {text}: {again.message}")
        if kept is not None:
            items.append(kept)
    return items, left_out


def _as_watched(
    found: Sequence[AnyObject], resource: Resource[Any]
) -> Sequence[KubeObject | Malformed]:
    page = msgspec.json.encode({"items": found})
    return LenientDecoder(resource).page(page).items or ()


def _in_statements(items: Sequence[KubeObject]) -> Iterator[KubeObject]:
    """Yield `items` but ConfigMaps; in place of a BindRequest its Statements."""
    for item in items:
        if isinstance(item, BindRequest):
            yield from item.each()
        elif not isinstance(item, ConfigMap):
            yield item


def past_usage(
    scenario: Scenario, given: GivenObjects, configuration: SchedulerConfiguration
) -> UsageSoFar | None:
    """Return the past usage of queues: the key `usage`, else the scheduler's record."""
    used = {queue.name: queue.usage for queue in scenario.queues if queue.usage}
    if used or configuration.usage.source != "record":
        return used or None
    namespace = configuration.leader_election.namespace
    text = given.record(namespace, record_name(configuration), KEY)
    return readable(text) if text is not None else None
