"""What the model knows of each kind, and the rules that the kinds have in common.

A `Strategy` has the rules of a kind for writes, as the strategies in Kubernetes' registry have:
which parts a write may set, what is defaulted, and what is refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

Plain = dict[str, Any]


def words(text: str) -> frozenset[str]:
    """Return the words of `text`."""
    return frozenset(text.split())


Problems = list[str]

_NOT_COUNTED: Final = ("metadata", "status")


@dataclass(frozen=True)
class Moment:
    """What a write may draw from its surroundings."""

    now_s: float
    stamp: Callable[[float], str]
    find: Callable[[str, str, str], "Mapping[str, Any] | None"]
    """Plural, namespace and name -> the stored object."""
    all_of: Callable[[str], "list[Mapping[str, Any]]"]
    """Plural -> all stored objects."""


class Strategy:
    """The rules of one kind for writes; those of most kinds."""

    unconditional_update = True
    """Whether a replacement without resourceVersion is possible."""
    create_on_update = False
    """Whether a replacement creates an object that does not exist."""
    returns_deleted = False
    """Whether the answer to a deletion is the object."""
    is_graceful = False
    """Whether objects are deleted with a grace period."""
    counts_generations = False
    first_generation = 0
    """The generation of a new object, for kinds whose generations are not counted."""
    is_collected = True
    """Whether the garbage collector knows the kind."""
    has_status = False
    keeps_created_status = False
    """Whether a new object may have a status."""
    is_custom = False
    """Whether the kind has a CustomResourceDefinition."""
    status_metadata = True
    """Whether a write of the status may change labels, annotations and finalizers."""
    is_rewritten = False
    """Whether the first write to a new object is stored even if it changes nothing.

    Kubernetes stores such an object without some defaults, and sets them whenever it reads it.
    """
    fields: ClassVar[Mapping[str, str]] = {}
    """Field selectors, beside name and namespace -> what an object without the field has."""
    merge_keys: ClassVar[Mapping[str, str]] = {}
    """Lists that a strategic merge patch merges: path -> the key of an element."""

    def prepare_create(self, new: Plain, moment: Moment) -> None:
        """Complete a new object."""

    def default(self, new: Plain) -> bool:
        """Set the defaults of a new or changed object; return whether numbers changed their type.

        Kubernetes counts `2.0` for a stored `2` as a change of the spec.
        """
        del new
        return False

    def prepare_update(self, new: Plain, old: Mapping[str, Any]) -> None:
        """Undo what a write must not change."""

    def prepare_status(self, new: Plain, old: Mapping[str, Any]) -> None:
        """Undo what a write of the status must not change."""

    def problems(self, new: Plain) -> Problems:
        """Return why an object is invalid."""
        del new
        return []

    def problems_of_update(self, new: Plain, old: Mapping[str, Any]) -> Problems:
        """Return why a change is invalid."""
        del new, old
        return []

    def problems_of_status(self, new: Plain, old: Mapping[str, Any]) -> Problems:
        """Return why a change of the status is invalid."""
        del new, old
        return []


def is_same_spec(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Whether two versions differ only in metadata and status."""
    names = (new.keys() | old.keys()) - set(_NOT_COUNTED)
    return all(new.get(name) == old.get(name) for name in names)


@dataclass(frozen=True, eq=False)
class Kind:
    """One kind of object, as the API server serves it."""

    group: str
    version: str
    plural: str
    name: str
    namespaced: bool
    strategy: Strategy = field(default_factory=Strategy)
    subresources: frozenset[str] = frozenset()

    @property
    def api_version(self) -> str:
        """`apiVersion` of the objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The plural with the group, as in messages."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def __repr__(self) -> str:
        return f"Kind({self.qualified})"


_MAPS: Final = words(
    """
    labels annotations matchLabels data stringData binaryData nodeSelector requests limits
    capacity allocatable parameters disruptedPods
    """
)
_ZEROS: Final = frozenset(("unschedulable", "hostNetwork", "observedGeneration"))
"""Fields whose false or 0 is left out."""
_KEPT_EMPTY: Final = frozenset(("storageClassName",))


def without_empty(value: Any) -> Any:
    """Remove nulls, empty texts and empty lists, as Kubernetes leaves them out of typed kinds."""
    if isinstance(value, dict):
        for name, each in list(value.items()):
            is_empty = each in ("", []) and name not in _KEPT_EMPTY
            if each is None or is_empty or (name in _ZEROS and not each):
                del value[name]
            elif isinstance(each, dict | list) and name not in _MAPS:
                without_empty(each)
    elif isinstance(value, list):
        for each in value:
            without_empty(each)
    return value
