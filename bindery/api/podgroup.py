"""PodGroup (`pg`): the pods that are placed together, whole or not at all."""

from typing import ClassVar, Final

from pydantic import Field

from bindery.api.base import ApiModel, Condition, CustomResource, Kind, NonNegative, PrinterColumn

SCHEDULED: Final = "Scheduled"
"""The PodGroup condition that says whether its gang has been planned, and why not."""


class PodGroupSpec(ApiModel):
    """What the owner of a gang asks for."""

    min_member: NonNegative = 1
    """How many pods must be placed together. Pods beyond it are added one by one; 0 makes every
    pod independent."""
    queue: str = "default"
    """The Queue that the gang is counted in."""
    priority_class_name: str | None = None
    """The PriorityClass that orders gangs in a queue; default: the highest of its pods."""


class PodGroupStatus(ApiModel):
    """What the scheduler found."""

    conditions: tuple[Condition, ...] = Field(
        default=(),
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    )


class PodGroup(CustomResource):
    """A gang: pods that name it in the annotation `scheduling.bindery.dev/pod-group`."""

    kind_info: ClassVar[Kind] = Kind(
        kind="PodGroup",
        plural="podgroups",
        short_names=("pg",),
        namespaced=True,
        columns=(
            PrinterColumn(name="Queue", json_path=".spec.queue"),
            PrinterColumn(name="Min", type="integer", json_path=".spec.minMember"),
            PrinterColumn(
                name="Scheduled", json_path='.status.conditions[?(@.type=="Scheduled")].status'
            ),
            PrinterColumn(
                name="Reason", json_path='.status.conditions[?(@.type=="Scheduled")].reason'
            ),
            PrinterColumn(name="Age", type="date", json_path=".metadata.creationTimestamp"),
        ),
    )
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus | None = None
