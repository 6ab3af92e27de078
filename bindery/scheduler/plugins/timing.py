"""Measures the time in each plugin, for the metric of plugin time."""

import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

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


def _timed_method(
    method: Callable[..., Any], name: str, seconds: dict[str, float]
) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        started_s = time.perf_counter()
        answer = method(*args)
        seconds[name] += time.perf_counter() - started_s
        # A generator works only when it is read, and callers read no more than they need.
        # isinstance with an abstract class takes as long as some of the many short calls.
        if hasattr(type(answer), "__next__"):
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
