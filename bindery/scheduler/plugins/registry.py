"""Builds the configured plugins and lists them by extension point."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from types import SimpleNamespace
from typing import Any, Final, TypeVar, cast

from bindery.api.configuration import PluginConfiguration
from bindery.api.names import SCHEDULER_PLUGINS
from bindery.api.plugins import PluginConfigurationError, build, installed
from bindery.api.spelling import meant
from bindery.kube.objects.resources import Resource
from bindery.scheduler.model.shapes import Need
from bindery.scheduler.plugins import findings
from bindery.scheduler.plugins.interface import jobs, nodes, state
from bindery.scheduler.plugins.interface.base import Plugin


def timed(plugin: Plugin, seconds: dict[str, float]) -> Plugin:
    """Return `plugin` with wrapped methods that add their time to `seconds[plugin.name]`."""
    seconds[plugin.name] = 0.0
    public = {name: getattr(plugin, name) for name in dir(plugin) if not name.startswith("_")}
    methods = {
        name: _timed_method(member, plugin.name, seconds)
        for name, member in public.items()
        if callable(member) and not isinstance(member, type)  # `arguments` is a class
    }
    return cast("Plugin", SimpleNamespace(name=plugin.name, **methods))


_AT_ONCE: Final = frozenset((type(None), bool, tuple))
"""The types of most answers; none of them works later."""


def _timed_method(
    method: Callable[..., Any], name: str, seconds: dict[str, float]
) -> Callable[..., Any]:
    clock = time.perf_counter

    def call(*args: Any) -> Any:
        started_s = clock()
        answer = method(*args)
        seconds[name] += clock() - started_s
        if answer is None:  # the most frequent answer
            return None
        # A generator works only when it is read, and callers read no more than they need.
        # isinstance with an abstract class takes as long as some of the many short calls.
        kind = type(answer)
        if kind not in _AT_ONCE and hasattr(kind, "__next__"):
            return _timed_iterator(answer, name, seconds)
        return answer

    return call


def _timed_iterator(answers: Iterator[Any], name: str, seconds: dict[str, float]) -> Iterator[Any]:
    """Yield `answers`, and add the time of each to `seconds[name]`."""
    while True:
        started_s = time.perf_counter()
        try:
            answer = next(answers)
        except StopIteration:
            return
        finally:
            seconds[name] += time.perf_counter() - started_s
        yield answer


Point = TypeVar("Point")
"""An extension point: a Protocol."""
_POINTS: Final = tuple(
    member
    for module in (jobs, nodes, state, findings)
    for member in vars(module).values()
    if getattr(member, "_is_protocol", False) and member.__module__ == module.__name__
)


def implementing(point: type[Point], plugins: Iterable[object]) -> list[Point]:
    """Return those of `plugins` that have all members of `point`, a Protocol.

    A plugin registers and inherits nothing: only names are compared. `isinstance` does the same,
    but collects the names for each plugin, which took most of the time to build an engine.
    """
    names = _members(cast("Any", point))
    return [
        cast("Point", each)
        for each in plugins
        if all(getattr(each, name, None) is not None for name in names)
    ]


@cache
def _members(point: type[Any]) -> tuple[str, ...]:
    protocols = [base for base in point.__mro__ if getattr(base, "_is_protocol", False)]
    return tuple(name for base in protocols for name in vars(base) if not name.startswith("_"))


@dataclass
class PluginSet:
    """The plugins of a session, in the configured order; `of` finds those of an extension point."""

    plugins: Sequence[Plugin]
    seconds: dict[str, float] = field(default_factory=dict)
    """Plugin name -> seconds spent in the plugin since the last `take_seconds`."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Plugin name -> factor of its scores; default 1."""
    _by_point: dict[type[Any], tuple[Any, ...]] = field(default_factory=dict, init=False)

    def of(self, point: type[Point]) -> tuple[Point, ...]:
        """Return the plugins that implement `point`, a Protocol, in the configured order."""
        found = self._by_point.get(point)
        if found is None:
            found = self._by_point[point] = tuple(implementing(point, self.plugins))
        return found

    def weight(self, plugin: Plugin) -> float:
        """Return the factor of the scores of `plugin`."""
        return self.weights.get(plugin.name, 1.0)

    @cached_property
    def supported(self) -> frozenset[Need]:
        """The needs of pods that some plugin supports."""
        return frozenset(need for p in self.of(state.Supports) for need in p.supported_needs())

    def watched_resources(self) -> tuple[Resource[Any], ...]:
        """Return the kinds observed by plugins, each once."""
        watched = (resource for p in self.of(state.Watches) for resource in p.watched_resources())
        return tuple(dict.fromkeys(watched))

    def take_seconds(self) -> dict[str, float]:
        """Return the seconds spent in each plugin since the last call."""
        taken = dict(self.seconds)
        # The timed methods write into this very dict, so it is reset and not replaced.
        for name in self.seconds:
            self.seconds[name] = 0.0
        return taken


def load(configured: Sequence[PluginConfiguration]) -> PluginSet:
    """Return the configured plugins, built from their entry points.

    Raises:
        PluginConfigurationError: a plugin is unknown, does not accept its arguments, implements no
            extension point, or has a weight although it does not score nodes.
    """
    seconds: dict[str, float] = {}
    plugins = [
        timed(plugin, seconds)
        for plugin in build(configured, installed(SCHEDULER_PLUGINS, tuple(sys.path)))
    ]
    for index, (item, plugin) in enumerate(zip(configured, plugins, strict=True)):
        if not any(implementing(point, [plugin]) for point in _POINTS):
            raise PluginConfigurationError(("plugins", index, "name"), _no_point(plugin))
        if item.weight != 1.0 and not isinstance(plugin, nodes.NodeScore):
            raise PluginConfigurationError(
                ("plugins", index, "weight"), f"plugin {item.name} does not score nodes"
            )
    return PluginSet(plugins, seconds, {item.name: item.weight for item in configured})


def _no_point(plugin: Plugin) -> str:
    """Return the error for `plugin`, which implements no extension point."""
    known = {name for point in _POINTS for name in _members(point)}
    meanings = {name: meant(name, known) for name in vars(plugin) if name not in known}
    near = [f"{name} (did you mean {m}?)" for name, m in meanings.items() if m is not None]
    there = f"; it has {', '.join(near)}" if near else ""
    return f"plugin {plugin.name} implements no extension point{there}"


def names() -> frozenset[str]:
    """Return the names of the installed scheduler plugins."""
    return frozenset(point.name for point in installed(SCHEDULER_PLUGINS, tuple(sys.path)))
