"""The page of all configuration keys, generated from the models.

Run by `make crds`; a test compares the file. Each group has a table with keys, defaults and
descriptions.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from bindery.api.configuration import (
    BinderConfiguration,
    GrouperConfiguration,
    SchedulerConfiguration,
)

_HEAD: Final = """# Configuration

The files that `bindery scheduler run --config`, `bindery binder run --config`,
`bindery webhook run --config` and `bindery grouper run --config` read, and the values
`scheduler.configuration`, `binder.configuration` and `grouper.configuration` of the chart.
Unknown keys are errors, with file and line.
The scheduler rereads its file when it changes; `schedulerName`, `nodePool`, `gpuResources`,
`gpuDeviceClasses`, `leaderElection`, `tenancyPolicyEnforced`, `grouper` and `usage.source`
need a restart.
If the changed file is not valid, the former configuration stays in use, and `bindery status` shows
the error.

This page is generated from the models by `make crds`.
"""
_FOOT: Final = "\nNext: [fields of all kinds](kinds.md)\n"
_FIXED: Final = frozenset({"apiVersion", "kind"})


def page() -> str:
    """Return the page as Markdown."""
    parts = [_HEAD]
    for model in (SchedulerConfiguration, BinderConfiguration, GrouperConfiguration):
        parts.append(f"\n## {model.__name__}\n")
        parts.append("\n| Key | Default | Meaning |\n|---|---|---|\n")
        parts.extend(_rows(model, ""))
    return "".join([*parts, _FOOT])


def _rows(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        key = prefix + (field.alias or name)
        if key in _FIXED:
            continue
        group = field.get_default(call_default_factory=True)
        if isinstance(group, BaseModel):
            if field.description:
                yield _row(key, "", field)
            yield from _rows(type(group), f"{key}.")
        else:
            yield _row(key, _default(group), field)


def _row(key: str, default: str, field: FieldInfo) -> str:
    meaning = " ".join((field.description or "").split()).replace("|", "\\|")
    return f"| `{key}` | {default} | {meaning} |\n"


def _default(value: Any) -> str:
    if isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
        return ", ".join(f"`{each.name}`" for each in value)
    if isinstance(value, dict):
        return "see the model" if value else "none"
    return f"`{json.dumps(value)}`"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
