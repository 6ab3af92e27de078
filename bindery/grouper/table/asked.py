"""What a whole gang asks for: queue, priority and the like, each with its object."""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from pydantic.alias_generators import to_camel

from bindery.api import names
from bindery.grouper.table import settings
from bindery.grouper.table.facts import Reference
from bindery.grouper.table.groups import Problem, ProblemReason
from bindery.grouper.table.paths import PathError, find
from bindery.grouper.table.rows import Row
from bindery.grouper.table.settings import Found
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


@dataclass(frozen=True)
class Asker:
    """Looks up what the pods of one group ask for."""

    around: Surroundings
    problems: set[Problem]

    def asked(self, links: Sequence[Link]) -> Asked:
        """Return what the nearest of `links` to the pod ask for."""
        return Asked(
            queue=settings.look_up(settings.QUEUE, links, self.problems),
            priority_class=self._priority_class(links),
            preemptible=settings.look_up(settings.PREEMPTIBLE, links, self.problems),
            runtime_s=settings.look_up(settings.RUNTIME, links, self.problems),
            run_time_limit_s=settings.look_up(settings.RUN_TIME_LIMIT, links, self.problems),
            preemption_delay_s=settings.look_up(settings.PREEMPTION_DELAY, links, self.problems),
            staleness_grace_s=settings.look_up(settings.STALENESS_GRACE, links, self.problems),
            stage_timeout_s=settings.look_up(settings.STAGE_TIMEOUT, links, self.problems),
            disruption_mode=settings.look_up(settings.DISRUPTION_MODE, links, self.problems),
            node_pool=settings.node_pool(links, self.problems),
            user=settings.look_up(settings.USER, links, self.problems),
            provisioning=settings.look_up(settings.PROVISIONING, links, self.problems),
        )

    def agreed(self, asked: Sequence[Asked], at: Reference) -> Asked:
        """Return what the parts of a gang ask for: for each value, the first part decides."""
        chosen: dict[str, Any] = {}
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
                self.problems.add(Problem(at, ProblemReason.PODS_DISAGREE, message))
        return Asked(**chosen)

    def completed(self, asked: Asked, row: Row, link: Link, *, pods_have_class: bool) -> Asked:
        """Return `asked` with what fields of the object, the namespace and the row say.

        `pods_have_class`: whether the pods name a PriorityClass, which the scheduler then reads.
        """
        changes: dict[str, Any] = {}
        if asked.queue is None:
            of_field = self._field(row.queue, link)
            changes["queue"] = of_field or self._queue_of(link.reference.namespace)
        if asked.priority_class is None:
            changes["priority_class"] = self._class_of(row, link, pods_have_class=pods_have_class)
        if asked.preemptible is None and row.preemptible is not None:
            changes["preemptible"] = Found(row.preemptible, link.reference)
        return Asked(**{each.name: getattr(asked, each.name) for each in fields(Asked)} | changes)

    def _field(self, paths: Sequence[str], link: Link) -> Found[str] | None:
        for path in paths:
            try:
                found = find(path, link.item)
            except PathError as error:
                problem = Problem(link.reference, ProblemReason.PATH_NOT_FOUND, str(error))
                self.problems.add(problem)
                continue
            if isinstance(found, str) and found:
                return Found(found, link.reference)
        return None

    def _class_of(self, row: Row, link: Link, *, pods_have_class: bool) -> Found[str] | None:
        """Return the PriorityClass of a field, else that of the kind."""
        known = self.around.priority_classes
        field_value = self._field(row.priority_class, link)
        if field_value is not None and (known is None or field_value.value in known):
            return field_value
        name = row.workload_class.value
        if pods_have_class or known is None or name not in known:
            return None
        return Found(name, link.reference)

    def _queue_of(self, namespace: str) -> Found[str] | None:
        name = self.around.namespace_labels.get(names.QUEUE_LABEL)
        return Found(name, Reference("v1", "Namespace", namespace, "")) if name else None

    def _priority_class(self, links: Sequence[Link]) -> Found[str] | None:
        """Return the first PriorityClass that our key names, or that another key names and exists.

        A gang whose class does not exist waits, as with a PodGroup that its user has written.
        """
        known = self.around.priority_classes
        for link in links:
            ours = settings.look_up(settings.OWN_PRIORITY_CLASS, (link,), self.problems)
            found = ours or settings.look_up(settings.PRIORITY_CLASS, (link,), self.problems)
            if found is None:
                continue
            if known is None or found.value in known:
                return found
            what = "the gang waits until it does" if ours else "it is ignored"
            message = f"PriorityClass {found.value} does not exist: {what}"
            self.problems.add(Problem(found.source, ProblemReason.INVALID_VALUE, message))
            if ours is not None:
                return ours
        return None


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
