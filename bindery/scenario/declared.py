"""The keys of a scenario that are fields of PodGroup and Queue, from the declarations of the kinds.

`keys_of` adds them to the models of jobs and queues: a new field is a key of scenarios at once. A
field in seconds has a key without the unit: `stageTimeoutSeconds` is `stageTimeout: 10m`. A key
that a model declares itself stays as it is.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Final, TypeVar

import msgspec
from pydantic import BeforeValidator, Field, create_model

from bindery.kube.objects.models import fields_of
from bindery.scenario.fields import ScenarioModel, parse_duration

StructT = TypeVar("StructT", bound=msgspec.Struct)

_UNIT: Final = "_seconds"


class Declared(ScenarioModel):
    """A model with keys of a kind."""

    from_kind: ClassVar[Mapping[str, msgspec.structs.FieldInfo]] = {}
    """Name of each added field -> the field of the kind."""

    def as_struct(self, kind: type[StructT], **own: Any) -> StructT:
        """Return the added keys that are given, and `own`, as a struct. An empty text is none."""
        given = self.model_dump(include=set(self.from_kind), by_alias=True, exclude_unset=True)
        fields = type(self).model_fields
        values = {
            field.name: msgspec.convert(given[alias], field.type)
            for name, field in self.from_kind.items()
            if given.get(alias := fields[name].alias or name, "") != ""
        }
        return kind(**values, **own)


DeclaredT = TypeVar("DeclaredT", bound=Declared)


def keys_of(
    kind: type[msgspec.Struct], without: tuple[str, ...] = ()
) -> Callable[[type[DeclaredT]], type[DeclaredT]]:
    """Return a decorator that adds all fields of `kind` except `without` to a model."""

    def add(model: type[DeclaredT]) -> type[DeclaredT]:
        fields: dict[str, Any] = {}
        from_kind: dict[str, msgspec.structs.FieldInfo] = {}
        declared = fields_of(kind)
        for field in msgspec.structs.fields(kind):
            key = field.name.removesuffix(_UNIT)
            if field.name in without or key in model.model_fields:
                continue
            typed, options = declared[field.name]
            if key != field.name:
                typed = Annotated[typed, BeforeValidator(_duration)]
            fields[key] = (typed, Field(**options))
            from_kind[key] = field
        made: type[DeclaredT] = create_model(
            model.__name__,
            __base__=model,
            __doc__=model.__doc__,
            __module__=model.__module__,
            **fields,
        )
        made.from_kind = from_kind
        return made

    return add


def _duration(value: object) -> float | None:
    return None if value is None else parse_duration(value)
