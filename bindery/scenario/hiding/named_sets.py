"""The names behind patterns and fingerprints, which cannot be hidden in place. Used by `hidden`.

Pure. A pattern is replaced by the names that it matches, and the pods of a fingerprint are found as
the plugin `numa` finds them.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from bindery.api import podfingerprint
from bindery.kube.objects import reading
from bindery.kube.objects.nodetopologies import NODE_RESOURCE_TOPOLOGIES, NodeResourceTopology
from bindery.kube.objects.topology import HYPER_NODES
from bindery.kube.objects.watched import Pod
from bindery.scenario.fields import AnyObject
from bindery.scheduler.plugins.numa.asks import Asks
from bindery.scheduler.plugins.numa.inclusion import MOST_TRIED

PodNames = Sequence[tuple[str, str]]
"""Namespaces and names of pods."""
_ENDED = frozenset({"Succeeded", "Failed"})
_INVALID = "["
"""A regular expression that is as invalid as the one that it replaces."""


def with_listed_members(objects: Sequence[AnyObject]) -> Iterator[AnyObject]:
    """Yield `objects`; members of HyperNodes are listed by name in place of a regular
    expression.
    """
    names: defaultdict[str, list[str]] = defaultdict(list)
    for item in objects:
        if item.get("kind") in ("Node", HYPER_NODES.kind):
            names[item["kind"]].append(str(item["metadata"]["name"]))
    for item in objects:
        spec = item.get("spec")
        members = spec.get("members") if isinstance(spec, dict) else None
        if item.get("kind") != HYPER_NODES.kind or not isinstance(members, list):
            yield item
            continue
        listed = [each for member in members for each in _listed(member, names)]
        yield {**item, "spec": {**item["spec"], "members": listed}}


def _listed(member: Any, names: Mapping[str, Sequence[str]]) -> list[Any]:
    if not isinstance(member, dict) or not isinstance(member.get("regex"), str):
        return [member]
    try:
        pattern = re.compile(member["regex"])
    except (re.error, RecursionError, OverflowError):
        return [{**member, "regex": _INVALID}]
    others = [key for key, each in member.items() if key != "type" and each is not None]
    if not member["regex"] or len(others) > 1:
        return [{**member, "regex": ""}]  # invalid in another way, which stays
    kind = member.get("type", "Node")
    return [{"type": kind, "name": each} for each in names.get(kind, ()) if pattern.search(each)]


def signed_pods(objects: Sequence[AnyObject]) -> dict[str, PodNames]:
    """Return node -> the pods in the fingerprint of its report, if they are found."""
    reports = [item for item in objects if item.get("kind") == NODE_RESOURCE_TOPOLOGIES.kind]
    if not reports:
        return {}
    pods: defaultdict[str, list[Pod]] = defaultdict(list)
    for item in objects:
        if item.get("kind") != "Pod":
            continue
        try:
            pod = reading.convert(item, Pod)
        except msgspec.ValidationError:
            continue
        if pod.spec.node_name and pod.status.phase not in _ENDED:
            pods[pod.spec.node_name].append(pod)
    found = ((str(item["metadata"]["name"]), item) for item in reports)
    signed = {name: _signed(item, pods[name]) for name, item in found}
    return {name: pods for name, pods in signed.items() if pods is not None}


def _signed(item: AnyObject, pods: Sequence[Pod]) -> PodNames | None:
    try:
        report = reading.convert(item, NodeResourceTopology)
    except msgspec.ValidationError:
        return None
    wanted = report.metadata.annotations.get(podfingerprint.ANNOTATION)
    wanted = report.attribute(podfingerprint.ATTRIBUTE) or wanted
    if report.attribute(podfingerprint.METHOD_ATTRIBUTE) == podfingerprint.METHOD_EXCLUSIVE:
        asks = Asks()
        pods = [pod for pod in pods if asks.of_pod(pod) is not None]
    ordered = sorted(pods, key=lambda p: p.status.start_time or p.metadata.creation_timestamp or "")
    names = [(pod.metadata.namespace, pod.metadata.name) for pod in ordered]
    for lacking in range(min(len(names), MOST_TRIED) + 1):  # a report may lack the newest pods
        if podfingerprint.sign(names[: len(names) - lacking]) == wanted:
            return names[: len(names) - lacking]
    return None
