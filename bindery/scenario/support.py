"""Find the keys and values of a scenario that are not supported yet. Called by `files`."""

from collections.abc import Iterator

from bindery.api.configuration import DEFAULT_PLUGINS
from bindery.api.yamlfile import Location, format_location
from bindery.scenario import hami, shares
from bindery.scenario.checks import Finding, plugin_places, pod_places
from bindery.scenario.format import Scenario
from bindery.scenario.jobs import GpuSelector, ScenarioPod


def unsupported(scenario: Scenario) -> Iterator[Finding]:
    """Yield the place and the text of each key or value that is not supported."""
    if scenario.config.usage.source == "prometheus":
        yield ("config", "usage", "source"), "config.usage.source: prometheus"
    for location, name in plugin_places(scenario.config):
        if name not in DEFAULT_PLUGINS:
            is_listed = location[1] == "withoutPlugins"
            text = f"config.withoutPlugins: {name}" if is_listed else format_location(location)
            yield location, text
    yield from _other_protocol(scenario)


def _other_protocol(scenario: Scenario) -> Iterator[Finding]:
    """Yield the keys that the protocol of sharing devices on the nodes does not have."""
    by_hami = shares.shares_by_hami(scenario)
    for index, node in enumerate(scenario.nodes):
        for at, device in enumerate(() if hami.is_shared(node) else node.devices):
            if device.cordoned or not device.healthy:
                health = "healthy" if not device.healthy else "cordoned"
                yield _found("nodes", index, "devices", at, health)
    for place, pod in pod_places(scenario):
        for index, container in enumerate(pod.init_containers):
            if container.gpu_fraction:
                yield _found(*place, "initContainers", index, "gpuFraction")
        for key in _in_vain(pod, by_hami=by_hami):
            yield _found(*place, *key)


def _found(*location: str | int) -> Finding:
    return location, format_location(location)


def _in_vain(pod: ScenarioPod, *, by_hami: bool) -> Iterator[Location]:
    """Yield the keys of `pod` that only the other protocol of sharing devices knows."""
    if by_hami:
        if pod.gpu_fraction:
            yield ("gpuFraction",)
        return
    if pod.gpu_cores:
        yield ("gpuCores",)
    if pod.gpu_policy:
        yield ("gpuPolicy",)
    if pod.gpu_selector != GpuSelector():
        yield ("gpuSelector",)
    for index, container in enumerate(pod.init_containers):
        amounts = {
            "gpuMemory": container.gpu_memory,
            "gpuMemoryPercent": container.gpu_memory_percent,
            "gpuCores": container.gpu_cores,
        }
        for key, amount in amounts.items():
            if amount:
                yield ("initContainers", index, key)
