"""The rows of the table: how the pods of a kind become gangs. docs/workloads.md explains each key.

Paths are JMESPath, texts have paths in braces; see `paths`.
"""

from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from bindery.api import ranks
from bindery.api.base import ApiModel
from bindery.grouper.table.paths import Path, Text


def _is_path(text: str) -> str:
    Path(text)
    return text


def _is_text(text: str) -> str:
    Text(text)
    return text


def _is_rank(label: str) -> str:
    if label not in ranks.LABELS:
        known = ", ".join(sorted(ranks.LABELS))
        raise ValueError(f"the scheduler reads no rank from {label}; it reads {known}")
    return label


def _listed(value: Any) -> Any:
    return (value,) if isinstance(value, str | int) else value


def _as_path(value: Any) -> Any:
    return f"`{value}`" if isinstance(value, int) and not isinstance(value, bool) else value


def _as_paths(value: Any) -> Any:
    listed = _listed(value)
    return [_as_path(each) for each in listed] if isinstance(listed, list | tuple) else listed


PathText = Annotated[str, BeforeValidator(_as_path), AfterValidator(_is_path)]
"""A path; a number stands for itself."""
TemplateText = Annotated[str, Field(min_length=1), AfterValidator(_is_text)]
Paths = Annotated[tuple[PathText, ...], BeforeValidator(_as_paths)]
"""Paths in order; the first that leads to something counts."""
Labels = Annotated[tuple[str, ...], BeforeValidator(_listed)]
RankLabels = Annotated[
    tuple[Annotated[str, AfterValidator(_is_rank)], ...], BeforeValidator(_listed)
]


TopologyKey = Literal["name", "required", "preferred"]


StageName = Literal["Ready", "Complete", "Bound"]


class StageCondition(StrEnum):
    """What a stage waits for in the one before."""

    READY = "Ready"
    COMPLETE = "Complete"
    BOUND = "Bound"


class WorkloadClass(StrEnum):
    """What a kind is used for; the default for the name of the PriorityClass."""

    TRAIN = "train"
    BUILD = "build"
    INFERENCE = "inference"


class Match(ApiModel):
    """The kind that a row is for."""

    group: str
    """The API group; "" is the core group."""
    kind: str = Field(min_length=1)
    label: str | None = None
    """Only objects with this label; such a row comes before one without it."""
    versions: Labels = ("*",)
    """The versions; `*` stands for all."""


class PassTo(ApiModel):
    """Where the walk goes on, below an owner that only wraps; exactly one key."""

    owner: bool = False
    """To the next owner below, or to the pod."""
    kind: str | None = None
    """To the next owner below of this kind."""
    pod: bool = False
    """To the pod itself."""
    object: "PassToObject | None" = None
    """To an object that is not in the chain."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        given = [self.owner, self.kind is not None, self.pod, self.object is not None]
        if sum(given) != 1:
            raise ValueError("exactly one of owner, kind, pod and object is needed")
        return self


class PassToObject(ApiModel):
    """An object of the pod's namespace that a label of the pod names."""

    group: str
    kind: str
    versions: Labels = ("*",)
    label: str
    """The pod's label with its name."""


class Per(ApiModel):
    """What has a PodGroup of its own; exactly one key. Default: the owner."""

    pod: bool = False
    """Every pod is independent; the pods of a controller share a PodGroup with minimum 0."""
    label: str | None = None
    """The pods with one value of this label."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if self.pod == (self.label is not None):
            raise ValueError("exactly one of pod and label is needed")
        return self


class After(ApiModel):
    """A role comes later than others."""

    role: TemplateText | None = None
    """The role before it; unset: all roles above it that are not later themselves."""
    each: PathText | None = None
    """A list in the element: one dependency for each of its items, in which `role` and
    `condition` are then read."""
    condition: str = StageCondition.READY.value
    """Ready, Complete or Bound; with `each`, a text such as `{status}`."""
    when: PathText | None = None
    """Only if this path leads to something true."""

    @model_validator(mode="after")
    def _condition_is_known(self) -> Self:
        Text(self.condition)
        if "{" not in self.condition:
            StageCondition(self.condition)
        return self


class Children(ApiModel):
    """The role is an inner group, with one sub-group for each replica."""

    count: Paths
    """How many replicas there are."""
    name: TemplateText = "{_name}.{_replica}"
    pods: dict[str, TemplateText]
    """Labels that select the pods of a replica."""
    lead: "Lead | None" = None


class Lead(ApiModel):
    """One pod of each replica comes first; the others are made when it is bound."""

    when: PathText
    label: str
    """The label that has the value 0 at the first pod."""
    condition: StageCondition = StageCondition.BOUND
    domain: PathText | None = None
    """A node label: the pods of a replica are on nodes with one value of it."""


class Role(ApiModel):
    """Pods of one template, or one role for each element of a list or map."""

    name: TemplateText
    each: PathText | None = None
    """A list or map of the object. The paths of the role then start at its elements."""
    skip: PathText | None = None
    """The role, or element, is left out if this leads to something true."""
    count: Paths = ("`1`",)
    """Maximum number of pods; empty if it is unknown."""
    left: Paths = ()
    """How many pods are left to run, if they can be fewer than `count`."""
    min: Paths = ()
    """How many must run together. Default: all that are left."""
    topology: dict[TopologyKey, PathText] = Field(default_factory=dict)
    """Paths to the topology of the role, for kinds with fields for it."""
    times: Paths = ("`1`",)
    """Both numbers are multiplied by it."""
    pods: dict[str, TemplateText] = Field(default_factory=dict)
    """Labels that select the pods of the role."""
    template: PathText | None = None
    """The pod template."""
    metadata: Paths = ()
    """More places with labels and annotations of the role, nearest to the pod first."""
    owner: str | None = None
    """The kind of the object that makes the pods of one leaf."""
    after: tuple[After, ...] = ()
    children: Children | None = None
    holds: Paths = ()
    """The role has no pods of its own: it is an inner group of the roles with these names."""
    domain: PathText | None = None
    """A node label: the pods of the roles that it `holds` are on nodes with one value of it."""


class Segment(ApiModel):
    """Consecutive pods that share a domain."""

    size: Paths = ()
    """The number of pods; the annotation comes first."""
    role: str | None = None
    """The role that is cut into segments. Default: the group as a whole."""
    when: PathText | None = None
    """The role is cut only if this is true; else the group as a whole."""
    label: str | None = None
    """The label with the number of a pod's segment, if the size comes from `size` and the group as
    a whole is cut. If one pod is left over, it belongs to the first segment."""


class Ordered(ApiModel):
    """The pods are created one by one, each when the one before it is ready."""

    when: PathText
    label: str
    """The label with the number of a pod."""
    start: Paths = ("`0`",)
    """The number of the first pod."""


class Row(ApiModel):
    """One kind."""

    match: Match
    pass_to: PassTo | None = Field(default=None, alias="pass")
    per: Per | None = None
    min: Paths = ()
    """How many pods must run together. Default: the sum over the roles, or all that are left."""
    min_sub_group: Paths = ()
    """How many of the roles must run together. Default: all of them."""
    count: Paths = ()
    """Without roles: how many pods there can be."""
    left: Paths = ()
    """Without roles: how many pods are left to run, if they can be fewer than `count`."""
    roles: tuple[Role, ...] = ()
    template: PathText | None = None
    """Without roles: the pod template."""
    segment: Segment | None = None
    ordered: Ordered | None = None
    """Without roles: if the minimum is above 1, each pod of it is a stage."""
    rank: RankLabels = ()
    """Labels with the index of a pod; the scheduler reads them from the pods."""
    topology: dict[TopologyKey, PathText] = Field(default_factory=dict)
    """Paths to the topology of the group, for kinds with fields for it."""
    queue: Paths = ()
    """Fields with the queue, if no label or annotation names one."""
    priority_class: Paths = ()
    """Fields with the PriorityClass, if no label or annotation names one."""
    workload_class: WorkloadClass = Field(default=WorkloadClass.TRAIN, alias="class")
    preemptible: bool | None = None
    """Whether the gang may be evicted if no annotation decides. Default: by priority."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        counted = self.min or self.roles or self.count or self.left
        if self.pass_to is not None and (counted or self.per):
            raise ValueError("a row with pass has no min, count, left, roles or per of its own")
        if self.roles and (self.count or self.left or self.template or self.ordered):
            raise ValueError("a row with roles has no count, left, template or ordered of its own")
        return self

    @cached_property
    def kind(self) -> str:
        """The kind with its group, as kubectl writes it: `Job.batch`."""
        return f"{self.match.kind}.{self.match.group}" if self.match.group else self.match.kind


class RowFile(ApiModel):
    """A file with rows."""

    api_version: Literal["scheduling.bindery.dev/v1alpha1"] = "scheduling.bindery.dev/v1alpha1"
    kind: Literal["GrouperTable"] = "GrouperTable"
    rows: tuple[Row, ...]
