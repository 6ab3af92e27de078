"""Hides the names in a snapshot. Called by `scenario.snapshot`; pure.

The objects are read twice: for the words, and then to replace them. Invariant: a scheduler plans
the hidden objects as it plans the given objects, up to the names.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from bindery.api.configuration import DEFAULT_PLUGINS, SchedulerConfiguration
from bindery.kube.objects import podspec
from bindery.scenario.fields import AnyObject
from bindery.scenario.given_objects import kinds_of
from bindery.scenario.hiding.hider import KEPT_NAMES, Hider, Seen
from bindery.scenario.hiding.named_sets import signed_pods, with_listed_members
from bindery.scenario.hiding.pseudonyms import pseudonyms
from bindery.scenario.hiding.rules import SCHEDULERS


class Hidden(NamedTuple):
    """A snapshot without names."""

    objects: Sequence[AnyObject]
    scheduler: AnyObject
    """The configuration, without the values that are defaults."""
    names: Mapping[str, str]
    """Pseudonym -> word."""


def hidden(objects: Sequence[AnyObject], configuration: SchedulerConfiguration) -> Hidden:
    """Return `objects` and `configuration` with pseudonyms in place of names."""
    kinds, seen = kinds_of(configuration.plugins), Seen()
    given = [*with_listed_members(objects)]
    signed = signed_pods(given)
    reader = Hider(kinds, seen, None, signed)
    for item in given:
        reader.object(item)
    _configuration(reader, configuration)
    pods = [item for item in given if item.get("kind") == "Pod"]
    of_pods = {str(item["metadata"]["name"]) for item in pods}
    names = pseudonyms(seen.words, of_pods & seen.words, KEPT_NAMES)
    hider = Hider(kinds, seen, names, signed)
    for pod, volume in _ephemeral_volumes(pods):
        if f"{pod}-{volume}" in names:  # the claim, which Kubernetes names like that
            names[f"{pod}-{volume}"] = f"{hider.word(pod)}-{hider.word(volume)}"
    return Hidden(
        [hider.object(item) for item in given],
        _configuration(hider, configuration),
        {pseudonym: word for word, pseudonym in sorted(names.items())},
    )


def _ephemeral_volumes(pods: Sequence[AnyObject]) -> Iterator[tuple[str, str]]:
    """Yield the pods with generic ephemeral volumes, with the name of each of these volumes."""
    for pod in pods:
        spec = pod.get("spec")
        for volume in (isinstance(spec, dict) and spec.get("volumes")) or ():
            if isinstance(volume, dict) and volume.get("ephemeral") is not None:
                yield str(pod["metadata"]["name"]), str(volume.get("name", ""))


def _configuration(hider: Hider, configuration: SchedulerConfiguration) -> AnyObject:
    found: AnyObject = configuration.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    if configuration.scheduler_name not in SCHEDULERS:
        found["schedulerName"] = hider.word(configuration.scheduler_name)
    if configuration.node_pool:
        found["nodePool"] = hider.word(configuration.node_pool)
    if "gpuResources" in found:
        every = hider.seen.resources | hider.seen.kept_resources
        names = hider.matching(every, configuration.gpu_resources)
        found["gpuResources"] = [hider.resource(name) for name in names]
    if "gpuDeviceClasses" in found:
        names = hider.matching(hider.seen.classes, configuration.gpu_device_classes)
        found["gpuDeviceClasses"] = [hider.word(name) for name in names]
    election = found.setdefault("leaderElection", {})
    election["namespace"] = hider.word(configuration.leader_election.namespace)
    if "prometheus" in found.get("usage", {}):
        found["usage"]["prometheus"] = {"address": "http://hidden"}
    for plugin in found.get("plugins", ()):
        if plugin["name"] not in DEFAULT_PLUGINS:  # its arguments may name things
            plugin["arguments"] = hider.value(plugin.get("arguments", {}), Any)
        for kind in plugin.get("arguments", {}).get("workload", ()):
            kind.update(hider.struct(kind, _Workload))
    return found


class _Workload(msgspec.Struct, rename="camel"):
    """What names things in a kind of pods in the arguments of the plugin fragmentation."""

    node_selector: dict[str, str]
    required_affinity: podspec.NodeSelector
    tolerations: list[podspec.Toleration]
