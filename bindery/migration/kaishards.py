"""KAI-Scheduler's SchedulingShard as the configuration of a scheduler.

A shard is a node pool with a scheduler; here each pool has a release of the chart. Source:
pkg/apis/kai/v1 of NVIDIA/KAI-Scheduler, v0.17, and the flags of its scheduler.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from bindery.api.configuration import DEFAULT_ACTIONS, DEFAULT_PLUGINS
from bindery.grouper.marks.foreign import UNREADABLE, Body, part, seconds
from bindery.migration.report import Migration

_PLUGINS: Final[Mapping[str, str]] = {
    "predicates": "predicates",
    "proportion": "fairshare",
    "priority": "priority",
    "podaffinity": "podaffinity",
    "dynamicresources": "dra",
    "topology": "topology",
    "nodeplacement": "nodeplacement",
}
"""KAI's plugin -> the one here that does the same."""
_STRATEGIES: Final = ("binpack", "spread")
_NO_LIMIT: Final = 1_000_000
"""Written where KAI's flag means that there is none."""
_KNOWN: Final = frozenset(
    {"args", "placementStrategy", "partitionLabelValue", "kValue", "usageDBConfig"}
)
_REASONS: Final[Mapping[str, str]] = {
    "queueDepthPerAction": "the cycle has a budget of time instead: cycleBudgetSeconds",
    "minRuntime": "set preemptMinRuntimeSeconds, reclaimMinRuntimeSeconds on the top queues",
    "scenarioSearchBudgets": "the cycle has a budget of time instead: cycleBudgetSeconds",
    "goMemLimitRatio": "the scheduler is not written in Go; set resources in the chart",
}


def pool_of(shard: Body) -> str:
    """Return the node pool of `shard`; "" is the default pool."""
    return str(part(shard, "spec").get("partitionLabelValue") or "")


def configuration_of(found: Migration, shard: Body) -> dict[str, Any]:
    """Return the SchedulerConfiguration for `shard`, as far as it differs from the default."""
    spec = part(shard, "spec")
    made: dict[str, Any] = {}
    if pool_of(shard):
        made["nodePool"] = pool_of(shard)
        reason = "label the nodes with scheduling.bindery.dev/node-pool, and install a release"
        found.lose(shard, "spec.partitionLabelValue", pool_of(shard), reason)
    actions = _actions(found, shard)
    if actions != list(DEFAULT_ACTIONS):
        made["actions"] = actions
    plugins = _plugins(found, shard)
    if plugins is not None:
        made["plugins"] = plugins
    usage = _usage(found, shard)
    if usage:
        made["usage"] = usage
    for name, value in part(spec, "args").items():
        _argument(found, shard, made, str(name), value)
    for key, value in spec.items():
        if key in _REASONS:
            found.lose(shard, f"spec.{key}", value, _REASONS[key])
        elif key not in _KNOWN | {"actions", "plugins"}:
            found.lose(shard, f"spec.{key}", value, "the field is not known")
    return made


def _placement(shard: Body) -> dict[str, str]:
    """Return the strategies for GPUs and CPUs; KAI's default is binpack."""
    given = part(shard, "spec", "placementStrategy")
    return {kind: str(given.get(kind) or "binpack") for kind in ("gpu", "cpu")}


def _actions(found: Migration, shard: Body) -> list[str]:
    actions = list(DEFAULT_ACTIONS)
    if "spread" in _placement(shard).values():
        actions.remove("consolidation")  # KAI's operator turns it off then
    for name, raw in part(shard, "spec", "actions").items():
        setting, path = dict(raw) if isinstance(raw, Mapping) else {}, f"spec.actions.{name}"
        if name not in DEFAULT_ACTIONS:
            found.lose(shard, path, setting, "there is no such action here")
            continue
        if setting.get("enabled") is False and name in actions:
            actions.remove(name)
        elif setting.get("enabled") is True and name not in actions:
            actions.insert(DEFAULT_ACTIONS.index(name), name)
        if setting.get("priority") is not None:
            reason = "actions stand in their order; see the key actions"
            found.lose(shard, f"{path}.priority", setting["priority"], reason)
    return actions


def _plugins(found: Migration, shard: Body) -> list[dict[str, Any]] | None:
    """Return all plugins, if they are not those of the default."""
    placement = _placement(shard)
    odd = {kind: value for kind, value in placement.items() if value not in _STRATEGIES}
    for kind, value in odd.items():
        found.lose(shard, f"spec.placementStrategy.{kind}", value, "binpack is used")
        placement[kind] = "binpack"
    off: set[str] = set()
    for name, raw in part(shard, "spec", "plugins").items():
        setting, path = dict(raw) if isinstance(raw, Mapping) else {}, f"spec.plugins.{name}"
        if setting.get("enabled") is False and name in _PLUGINS:
            off.add(_PLUGINS[name])
            continue
        if name not in _PLUGINS:
            found.lose(shard, path, setting, "there is no such plugin here")
            continue
        for key in ("priority", "arguments"):
            if setting.get(key):
                reason = "plugins stand in their order, and have arguments of their own"
                found.lose(shard, f"{path}.{key}", setting[key], reason)
    if (
        not off
        and set(placement.values()) == {"binpack"}
        and not part(shard, "spec", "placementStrategy")
    ):
        return None
    # KAI places by binpack or spread alone; the plugin fragmentation would come before it.
    names = [name for name in DEFAULT_PLUGINS if name not in off | {"fragmentation"}]
    arguments = {"gpu": placement["gpu"], "cpu": placement["cpu"], "device": placement["gpu"]}
    return [
        {"name": name, "arguments": arguments} if name == "nodeplacement" else {"name": name}
        for name in names
    ]


def _usage(found: Migration, shard: Body) -> dict[str, Any]:
    spec = part(shard, "spec")
    usage: dict[str, Any] = {}
    if spec.get("kValue") is not None:
        usage["kValue"] = spec["kValue"]
    database = part(spec, "usageDBConfig")
    if not database:
        return usage
    address = str(database.get("connectionString") or "")
    prometheus: dict[str, Any] = {}
    if database.get("clientType") == "prometheus" and address:
        usage["source"], prometheus = "prometheus", {"address": address}
        reason = "past usage is read from bindery_queue_allocated: let Prometheus scrape it first"
        found.lose(shard, "spec.usageDBConfig.clientType", "prometheus", reason)
    else:
        usage["source"] = "record"
        reason = "the scheduler keeps the record itself; it begins empty"
        found.lose(shard, "spec.usageDBConfig", database, reason)
    for key, value in part(database, "usageParams").items():
        place = _USAGE.get(key)
        duration = seconds(value)
        if place is None or duration is None:
            if (key, value) != ("windowType", "sliding"):
                reason = _LOST_USAGE.get(key, "there is no such setting")
                reason = UNREADABLE if place else reason
                found.lose(shard, f"spec.usageDBConfig.usageParams.{key}", value, reason)
        elif place.startswith("prometheus."):
            if prometheus:
                prometheus[place.removeprefix("prometheus.")] = duration
        else:
            usage[place] = duration
    if prometheus:
        usage["prometheus"] = prometheus
    return usage


_LOST_USAGE: Final[Mapping[str, str]] = {
    "windowType": "windows slide here; there is no other kind",
    "tumblingWindowCronString": "windows slide here; there is no other kind",
}
_USAGE: Final[Mapping[str, str]] = {
    "halfLifePeriod": "halfLifeSeconds",
    "windowSize": "windowSeconds",
    "fetchInterval": "prometheus.fetchSeconds",
    "stalenessPeriod": "prometheus.stalenessSeconds",
}


def _duration(value: object) -> float | None:
    return seconds(str(value))


def _most_moved(value: object) -> int | None:
    try:
        number = int(str(value))
    except ValueError:
        return None
    return _NO_LIMIT if number < 0 else number


_ARGUMENTS: Final[Mapping[str, tuple[str, Callable[[object], object | None]]]] = {
    "scheduler-name": ("schedulerName", str),
    "schedule-period": ("cycleSeconds", _duration),
    "max-consolidation-preemptees": ("consolidationMaxMoved", _most_moved),
    "default-staleness-grace-period": ("stalenessGracePeriodSeconds", _duration),
    "stuck-in-releasing-threshold": ("stuckInReleasingSeconds", _duration),
}
"""Flag of KAI's scheduler -> key of the configuration, and how the value is read."""
_QUIET: Final = frozenset({"leader-elect", "v", "qps", "burst", "listen-address", "version"})
"""Flags about the process, which the chart decides."""


def _argument(
    found: Migration, shard: Body, made: dict[str, Any], name: str, value: object
) -> None:
    path = f"spec.args.{name}"
    if name in _QUIET:
        return
    if name not in _ARGUMENTS:
        found.lose(shard, path, value, "the flag has no equal here")
        return
    key, read = _ARGUMENTS[name]
    read_value = read(value)
    if read_value is None:
        found.lose(shard, path, value, UNREADABLE)
    else:
        made[key] = read_value
