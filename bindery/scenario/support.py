"""Find the keys of a scenario that are not supported yet.

Called by `files` for every scenario. It only compares values with the `NotYet` marks of the
models, and with the few rules that depend on more than one key; each new behaviour removes marks.
"""

from collections.abc import Iterator, Mapping

from pydantic import BaseModel

from bindery.api.configuration import DEFAULT_PLUGINS
from bindery.api.yamlfile import Location, format_location
from bindery.scenario import hami, shares
from bindery.scenario.checks import job_places
from bindery.scenario.fields import NotYet
from bindery.scenario.format import Scenario
from bindery.scenario.jobs import GpuSelector, ScenarioPod


def unsupported(scenario: Scenario) -> list[tuple[Location, str]]:
    """Return the place and the text of each unsupported key of `scenario`."""
    found = [(location, format_location(location)) for location in _marked(scenario, ())]
    found.extend(_values(scenario))
    return found


def _marked(value: object, location: Location) -> Iterator[Location]:
    if isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            item = getattr(value, name)
            mark = next((mark for mark in field.metadata if isinstance(mark, NotYet)), None)
            here = (*location, field.alias or name)
            if mark is None:
                yield from _marked(item, here)
            elif not _asks_for_nothing(item, field.get_default(call_default_factory=True), mark):
                yield here
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _marked(item, (*location, str(key)))
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _marked(item, (*location, index))


def _asks_for_nothing(value: object, default: object, mark: NotYet) -> bool:
    if value == default or any(value == neutral for neutral in mark.neutral):
        return True
    return isinstance(value, Mapping | tuple | str) and not value


def _values(scenario: Scenario) -> Iterator[tuple[Location, str]]:
    """Yield the unsupported values of keys that are supported otherwise."""
    if scenario.config.usage.source == "prometheus":
        yield ("config", "usage", "source"), "config.usage.source: prometheus"
    for name in scenario.config.plugins:
        if name not in DEFAULT_PLUGINS:
            yield ("config", "plugins", name), f"config.plugins.{name}"
    for name in scenario.config.weights:
        if name not in DEFAULT_PLUGINS:
            yield ("config", "weights", name), f"config.weights.{name}"
    for index, name in enumerate(scenario.config.without_plugins):
        if name not in DEFAULT_PLUGINS:
            yield ("config", "withoutPlugins", index), f"config.withoutPlugins: {name}"
    yield from _other_protocol(scenario)


def _other_protocol(scenario: Scenario) -> Iterator[tuple[Location, str]]:
    """Yield the keys that ask the nodes' protocol of sharing devices for what it does not know."""
    by_hami = shares.shares_by_hami(scenario)
    for index, node in enumerate(scenario.nodes):
        for at, device in enumerate(() if hami.is_shared(node) else node.devices):
            if device.cordoned or not device.healthy:
                health = "healthy" if not device.healthy else "cordoned"
                yield _found("nodes", index, "devices", at, health)
    for place, job in job_places(scenario):
        for at, pod in enumerate(job.pods):
            for key in _in_vain(pod, by_hami=by_hami):
                yield _found(*place, "pods", at, *key)


def _found(*location: str | int) -> tuple[Location, str]:
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
