"""The page of all Prometheus series, generated from the metrics that each process registers.

`make crds` writes it; a test fails when it differs.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

from prometheus_client import Metric
from prometheus_client.metrics import MetricWrapperBase

from bindery.scheduler.status.queue_metrics import QueueFigures
from bindery.scheduler.usage.metrics import QueueCollector
from bindery.scheduler.usage.source import nothing_past

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "series.md"

PROCESSES: Final[Mapping[str, Sequence[str]]] = {
    "Every component": ("kube.metrics",),
    "Scheduler": (
        "scheduler.commit.metrics",
        "scheduler.history.keeping",
        "scheduler.usage.metrics",
        "scheduler.status.queue_metrics",
    ),
    "Binder": ("binder.metrics", "binder.plugins.hami.metrics", "binder.webhook.server"),
    "Grouper": ("grouper.metrics",),
    "Dashboard": ("dashboard.metrics",),
    "Beside a kubelet": ("nodeagent.beside.metrics",),
    "Device plugin for shares": ("nodeagent.shares.metrics",),
    "Node agent": ("nodeagent.metrics", "nodeagent.identity.metrics"),
}
"""Process -> the modules of `bindery` that register its metrics."""

_HEAD: Final = """# All series

Every Prometheus series of each process, with the help text that `/metrics` has.
[Metrics](metrics.md) explains how to read those of queues.

This page is generated from the registered metrics by `make crds`.
"""
_FOOT: Final = "\nNext: [performance](performance.md)\n"


def page() -> str:
    """Return the page as Markdown."""
    parts = [_HEAD]
    for process, modules in PROCESSES.items():
        parts.append(f"\n## {process}\n\n| Series | Type | Labels | Meaning |\n|---|---|---|---|\n")
        parts += sorted(row for module in modules for row in _rows(f"bindery.{module}"))
    return "".join([*parts, _FOOT])


def _rows(module: str) -> Iterator[str]:
    """Yield the rows of the metrics that `module` names, and of its collector."""
    for each in vars(import_module(module)).values():
        if isinstance(each, MetricWrapperBase):
            (family,) = each.describe()
            yield _row(family, each._labelnames)  # no public name for them
    for collector in (QueueFigures(), QueueCollector(nothing_past())):
        if type(collector).__module__ == module:
            for family in collector.collect():
                yield _row(family, family._labelnames)


def _row(family: Metric, labels: Sequence[str]) -> str:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    shown = ", ".join(f"`{label}`" for label in labels)
    meaning = family.documentation.replace("|", "\\|")
    return f"| `{name}` | {family.type} | {shown} | {meaning} |\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
