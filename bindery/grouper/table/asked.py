"""What a whole gang asks for: queue, priority and the like, each with its object."""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from pydantic.alias_generators import to_camel

from bindery.api import names
from bindery.grouper.table import settings
from bindery.grouper.table.facts import Reference
from bindery.grouper.table.groups import ProblemReason
from bindery.grouper.table.rows import Row
from bindery.grouper.table.settings import Found, Setting
from bindery.grouper.table.steps import Notes, Step, find_first, text
from bindery.grouper.table.walk import Link

_MOST_NAME: Final = 180
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9.-]+")


@dataclass(frozen=True)
class Surroundings:
    """What a plan needs to know besides owners and pods."""

    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    """The labels of the pods' namespace."""
    priority_classes: frozenset[str] | None = None
    """The names of all PriorityClasses; None if they are not known."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """UIDs of owners that exist or may exist and cannot be read, with the reason."""


_SPEC: Final = {
    "queue": "queue",
    "priority_class": "priority_class_name",
    "preemptible": "preemptibility",
    "runtime_s": "expected_runtime_seconds",
    "run_time_limit_s": "run_time_limit_seconds",
    "preemption_delay_s": "preemption_delay_seconds",
    "staleness_grace_s": "staleness_grace_period_seconds",
    "stage_timeout_s": "stage_timeout_seconds",
    "disruption_mode": "disruption_mode",
}
"""Field of `Asked` -> field of a PodGroupSpec."""
_PREEMPTIBILITY: Final = {True: "Preemptible", False: "NonPreemptible"}


@dataclass(frozen=True)
class Asked:
    """The values that hold for all pods of a group."""

    queue: Found[str] | None = None
    priority_class: Found[str] | None = None
    preemptible: Found[bool] | None = None
    runtime_s: Found[float] | None = None
    run_time_limit_s: Found[float] | None = None
    preemption_delay_s: Found[float] | None = None
    staleness_grace_s: Found[float] | None = None
    stage_timeout_s: Found[float] | None = None
    disruption_mode: Found[Any] | None = None
    node_pool: Found[str] | None = None
    user: Found[str] | None = None
    provisioning: Found[bool] | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """The values without their sources: names of PodGroups contain a digest of them."""
        found = ((each.name, getattr(self, each.name)) for each in fields(self))
        return tuple((name, each.value) for name, each in found if each is not None)

    def to_spec(self) -> dict[str, Any]:
        """Return the fields of a PodGroupSpec."""
        spec = {field: found.value for field, found in self._found()}
        if self.preemptible is not None:
            spec["preemptibility"] = _PREEMPTIBILITY[self.preemptible.value]
        return spec

    def sources(self) -> dict[str, str]:
        """Return, by the field on the wire, the object that gave the value."""
        return {to_camel(field): str(found) for field, found in self._found()}

    def _found(self) -> Iterator[tuple[str, Found[Any]]]:
        for name, spec_field in _SPEC.items():
            found = getattr(self, name)
            if found is not None:
                yield spec_field, found

    def labels(self) -> dict[str, str]:
        """Return the labels of the PodGroup."""
        labelled = {names.NODE_POOL_LABEL: self.node_pool, names.USER_KEY: self.user}
        return {key: found.value for key, found in labelled.items() if found is not None}

    def annotations(self) -> dict[str, str]:
        """Return the annotations of the PodGroup."""
        return settings.provisioning_annotation(self.provisioning)


_SETTINGS: Final[Mapping[str, Setting[Any]]] = {
    "queue": settings.QUEUE,
    "preemptible": settings.PREEMPTIBLE,
    "runtime_s": settings.RUNTIME,
    "run_time_limit_s": settings.RUN_TIME_LIMIT,
    "preemption_delay_s": settings.PREEMPTION_DELAY,
    "staleness_grace_s": settings.STALENESS_GRACE,
    "stage_timeout_s": settings.STAGE_TIMEOUT,
    "disruption_mode": settings.DISRUPTION_MODE,
    "user": settings.USER,
    "provisioning": settings.PROVISIONING,
}
"""Field of `Asked` -> the setting that the nearest link decides."""


def ask(links: Sequence[Link], around: Surroundings) -> Step[Asked]:
    """Return the values of the links nearest to the pod."""
    notes = Notes()
    found: dict[str, Any] = {
        name: notes.take(settings.look_up(setting, links)) for name, setting in _SETTINGS.items()
    }
    found["priority_class"] = notes.take(_priority_class(links, around.priority_classes))
    found["node_pool"] = notes.take(settings.node_pool(links))
    return notes.step(Asked(**found))


def agree(asked: Sequence[Asked], at: Reference) -> Step[Asked]:
    """Return the values of a gang: for each value, the first part that has one decides."""
    notes, chosen = Notes(), dict[str, Any]()
    for each in fields(Asked):
        found = [value for part in asked if (value := getattr(part, each.name)) is not None]
        if not found:
            continue
        chosen[each.name] = found[0]
        if any(value.value != found[0].value for value in found):
            what = to_camel(_SPEC.get(each.name, each.name))
            values = ", ".join(sorted({str(value.value) for value in found}))
            message = (
                f"parts of one gang ask for different values of {what}: {values}; "
                f"{found[0].value} of {found[0]} counts"
            )
            notes.add(at, ProblemReason.PODS_DISAGREE, message)
    return notes.step(Asked(**chosen))


def complete(
    asked: Asked, row: Row, link: Link, around: Surroundings, *, pods_have_class: bool
) -> Step[Asked]:
    """Return `asked` with defaults from fields of the object, the namespace and the row.

    `pods_have_class`: whether the pods name a PriorityClass, which the scheduler then reads.
    """
    notes, changes = Notes(), dict[str, Any]()
    at, known = link.reference, around.priority_classes
    if asked.queue is None:
        of_field = notes.take(find_first(at, row.queue, link.item, text))
        if of_field is not None:
            changes["queue"] = Found(of_field, at)
        elif name := around.namespace_labels.get(names.QUEUE_LABEL):
            changes["queue"] = Found(name, Reference("v1", "Namespace", at.namespace, ""))
    if asked.priority_class is None:
        of_field = notes.take(find_first(at, row.priority_class, link.item, text))
        of_kind = row.workload_class.value
        if of_field is not None and (known is None or of_field in known):
            changes["priority_class"] = Found(of_field, at)
        elif not pods_have_class and known is not None and of_kind in known:
            changes["priority_class"] = Found(of_kind, at)
    if asked.preemptible is None and row.preemptible is not None:
        changes["preemptible"] = Found(row.preemptible, at)
    return notes.step(replace(asked, **changes))


def _priority_class(links: Sequence[Link], known: frozenset[str] | None) -> Step[Found[str] | None]:
    """Return the first PriorityClass that our key names, or that another key names and exists.

    A gang whose class does not exist waits, as with a PodGroup that its user has written.
    """
    notes = Notes()
    for link in links:
        ours = notes.take(settings.look_up(settings.OWN_PRIORITY_CLASS, (link,)))
        found = ours or notes.take(settings.look_up(settings.PRIORITY_CLASS, (link,)))
        if found is None:
            continue
        if known is None or found.value in known:
            return notes.step(found)
        what = "the gang waits until it does" if ours else "it is ignored"
        message = f"PriorityClass {found.value} does not exist: {what}"
        notes.add(found.source, ProblemReason.INVALID_VALUE, message)
        if ours is not None:
            return notes.step(ours)
    return notes.step(None)


def name_of(at: Reference, value: str = "") -> str:
    """Return the name of the PodGroup of `at`, such as `job-train-3f2a9c1d`: the end is of the UID.

    `value`: distinguishes several PodGroups of one object.
    """
    parts = [at.kind.lower(), _fit(at.name, _MOST_NAME), at.uid[:8], _fit(value, 40)]
    return "-".join(part for part in parts if part)


def digest(values: object) -> str:
    """Return eight letters that differ where `values` differ."""
    return hashlib.sha256(repr(values).encode()).hexdigest()[:8]


def _fit(text: str, most: int) -> str:
    """Return `text` as a part of a name; one that had to be changed ends in a digest."""
    fit = _NOT_IN_NAMES.sub("-", text.lower()).strip("-.")
    if fit == text and len(fit) <= most:
        return fit
    return f"{fit[: most - 9]}-{digest(text)}".strip("-")
