"""Pydantic models of structs, for objects that people write: unknown keys and bounds are errors.

Made from the declarations, so that a file is checked as the API server would check the object. Used
for manifests, for the keys of scenarios, and for PodGroups that are translated from other APIs.
"""

from functools import cache, partial
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import NODEFAULT
from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator
from pydantic.alias_generators import to_camel

from bindery.api.base import ApiModel
from bindery.kube.objects.declaring import REQUIRED, Validation, default_of
from bindery.kube.objects.watched import CustomResource

StructT = TypeVar("StructT", bound=msgspec.Struct)

_BOUNDS: Final = {
    "maximum": "le",
    "maxItems": "max_length",
    "maxLength": "max_length",
    "maxProperties": "max_length",
    "minItems": "min_length",
    "minLength": "min_length",
    "minimum": "ge",
    "pattern": "pattern",
}
"""Keys of JSON schema -> arguments of pydantic's Field."""
_OF_OBJECTS: Final = ("spec", "status")


def validated(kind: type[StructT], value: object) -> StructT:
    """Return `value`, decoded JSON, as `kind`.

    Raises:
        pydantic.ValidationError: a key is unknown, or a value is outside its bounds.
    """
    return as_struct(model_of(kind).model_validate(value), kind)


def as_struct(model: BaseModel, kind: type[StructT]) -> StructT:
    """Return the fields that are set in a model of `kind`, as a struct."""
    return msgspec.convert(model.model_dump(by_alias=True, exclude_unset=True), kind)


class _MadeModel(ApiModel):
    """The base of made models."""

    # Pydantic would look for docstrings in the source of each of them, which takes milliseconds.
    model_config = ConfigDict(use_attribute_docstrings=False)


@cache
def model_of(kind: type[msgspec.Struct]) -> type[ApiModel]:
    """Return the model of `kind`; for an object, the model has only spec and status."""
    fields: dict[str, Any] = {
        name: (typed, Field(**options))
        for name, (typed, options) in fields_of(kind).items()
        if name in _OF_OBJECTS or not issubclass(kind, CustomResource)
    }
    rules: dict[str, Any] = {
        f"rule_{index}": model_validator(mode="after")(_checker(rule))
        for index, rule in enumerate(getattr(kind, "validations", ()))
    }
    made: type[ApiModel] = create_model(
        kind.__name__,
        __base__=_MadeModel,
        __module__=kind.__module__,
        __validators__=rules,
        **fields,
    )
    return made


def fields_of(kind: type[msgspec.Struct]) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return the fields of `kind`: types of a model, and arguments of pydantic's Field."""
    hints = get_type_hints(kind, include_extras=True)
    found: dict[str, tuple[Any, dict[str, Any]]] = {}
    for field in msgspec.structs.fields(kind):
        hint, default = hints[field.name], default_of(field)
        options: dict[str, Any] = {}
        if field.encode_name != to_camel(field.name):
            options["alias"] = field.encode_name
        if isinstance(default, msgspec.Struct):
            options["default_factory"] = partial(_default, type(default))
        elif default is not NODEFAULT and REQUIRED not in get_args(hint):
            options["default"] = default
        found[field.name] = (_typed(hint), options)
    return found


def _default(kind: type[msgspec.Struct]) -> ApiModel:
    return model_of(kind)()


def _typed(hint: Any) -> Any:
    """Return a type of a struct's field as a type of a model's field."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _bounded(arguments[0], arguments[1:])
    if origin in (Union, UnionType):
        return Union[tuple(_typed(each) for each in arguments)]  # noqa: UP007  # made at run time
    if origin is list:
        return list[_typed(arguments[0])]  # type: ignore[misc]  # made at run time
    if origin is dict:
        return dict[str, _typed(arguments[1])]  # type: ignore[misc]  # made at run time
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return model_of(hint)
    return hint


def _bounded(hint: Any, marks: tuple[Any, ...]) -> Any:
    given: dict[str, Any] = {}
    for each in marks:
        given |= getattr(each, "extra_json_schema", None) or {}
    if "anyOf" in given:  # pydantic has no bounds for a union
        return _typed(hint)
    if "enum" in given:
        word: Any = Literal[tuple(given["enum"])]
        return word | None if NoneType in get_args(hint) else word
    bounds = {_BOUNDS[key]: bound for key, bound in given.items() if key in _BOUNDS}
    if given.get("exclusiveMinimum"):
        bounds["gt"] = bounds.pop("ge")
    typed = _typed(hint)
    return Annotated[typed, Field(**bounds)] if bounds else typed


def _checker(rule: Validation) -> Any:
    def check(model: BaseModel) -> BaseModel:
        if rule.holds is not None and not rule.holds(model):
            raise ValueError(rule.message)
        return model

    return check
