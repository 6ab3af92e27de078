"""Formats amounts, names and counts as text. Used by all tables and answers with shares."""

from bindery.api import quantity
from bindery.api.gpus import MODEL_PREFIX
from bindery.api.names import GPU_RESOURCE

_TITLES = {"gpu": "GPUs", "cpu": "CPU cores", "memory": "memory"}


def amount(resource: str, wholes: float | None) -> str:
    """Return devices, cores or bytes as text: `7.5`, `64Gi`; `-` for an unlimited amount."""
    if wholes is None:
        return "-"
    if quantity.scale(resource) == 1:
        return quantity.display(round(wholes), resource)
    return f"{wholes:.2f}".rstrip("0").rstrip(".")


def plain(resource: str, written: str) -> str:
    """Return an amount of a status in a readable form: `82.7` for `82700m`."""
    try:
        return quantity.display(quantity.parse(written, resource), resource)
    except quantity.QuantityError:  # "-" or "unlimited"
        return written


def title(resource: str) -> str:
    """Return the heading of `resource`: `GPUs`, `GPUs of model A100`, or its own name."""
    if resource.startswith(MODEL_PREFIX):
        return f"GPUs of model {resource.removeprefix(MODEL_PREFIX)}"
    return _TITLES.get(resource, resource)


def short(resource: str) -> str:
    """Return the name of `resource` in queues: `gpu` for the GPU resource."""
    return "gpu" if resource == GPU_RESOURCE else resource


def ordinal(number: int) -> str:
    """Return `number` as 1st, 2nd, 3rd, 4th."""
    teens = 10 <= number % 100 <= 20
    return f"{number}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def plural(count: int, noun: str) -> str:
    """Return `1 pod`, `2 pods`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def listed(names: list[str] | tuple[str, ...], most: int = 6) -> str:
    """Return at most `most` of `names` as a list: `a, b and 12 more`."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"
