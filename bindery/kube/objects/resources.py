"""The kinds that Bindery uses: their API paths and decoders.

A `Resource` ties a REST path to the msgspec type of its objects; every call of
`client` and every `watches.reflector.Reflector` takes one. Resources are constants:
equal ones are interchangeable, and nothing here talks to a server.
"""

import builtins
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

import msgspec

from bindery.api import names
from bindery.kube.errors import NotFoundError
from bindery.kube.objects import reading
from bindery.kube.objects import watched as objects
from bindery.kube.objects.bindrequests import BindRequest
from bindery.kube.objects.nesting import cut
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.queues import Queue

T = TypeVar("T", bound=objects.KubeObject)
OtherT = TypeVar("OtherT", bound=objects.KubeObject)
OwnT = TypeVar("OwnT", bound=objects.CustomResource)
ItemT = TypeVar("ItemT")


class ListMeta(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """`metav1.ListMeta`: the version of a list, and the start of the next page."""

    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")


class ObjectList(msgspec.Struct, Generic[ItemT], frozen=True, kw_only=True):
    """One page of a list."""

    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[ItemT] | None = None


RAW_PAGES: Final = msgspec.json.Decoder(ObjectList[msgspec.Raw])
"""Decodes a page of a list without decoding its objects."""


@dataclass(frozen=True)
class Resource(Generic[T]):
    """One kind of object, as the API server serves it."""

    group: str
    """"" is the core group."""
    version: str
    plural: str
    kind: str
    namespaced: bool
    type: builtins.type[T]
    """The type of the decoded objects."""
    partial: bool = field(default=False)
    """Ask the server for metadata alone (PartialObjectMetadata)."""
    rescue: "Callable[[T, str], T] | None" = field(default=None, compare=False)
    """Marks an object that was read only in part, for the given reason, and is still used."""
    held: "Callable[[T, str], T | None] | None" = field(default=None, compare=False)
    """Returns the usable rest of an object that was read only in part, for the given reason, and
    that has no known earlier version; None: the rest is not usable. Unreadable objects of other
    kinds count as absent."""

    def decoded_as(
        self,
        kind: "builtins.type[OtherT]",
        *,
        partial: bool = False,
        held: "Callable[[OtherT, str], OtherT | None] | None" = None,
    ) -> "Resource[OtherT]":
        """Return the same kind with objects of the type `kind`, for example with fewer fields."""
        served = (self.group, self.version, self.plural, self.kind, self.namespaced)
        return Resource(*served, kind, partial=partial, held=held)

    @cached_property
    def api_version(self) -> str:
        """`apiVersion` of the objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def root(self) -> str:
        """The path of the group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @cached_property
    def decoder(self) -> "msgspec.json.Decoder[T]":
        """Decodes one object."""
        return msgspec.json.Decoder(self.type)

    @cached_property
    def list_decoder(self) -> "msgspec.json.Decoder[ObjectList[T]]":
        """Decodes one page of a list."""
        return msgspec.json.Decoder(ObjectList[self.type])  # type: ignore[name-defined]  # a type held in a field is a valid parameter at run time

    def decode(self, raw: bytes | msgspec.Raw) -> T:
        """Decode one object; if decoding fails, return the result of `rescue`.

        Raises:
            msgspec.DecodeError: both fail.
        """
        try:
            return reading.decode(raw, self.decoder)
        except RecursionError as error:
            raise msgspec.DecodeError(f"it is nested too deeply: {error}") from error
        except msgspec.ValidationError as error:
            if self.rescue is not None:
                part = reading.read_in_part(msgspec.json.decode(raw), self.type, None)
                if part is not None:
                    return self.rescue(part, str(error))
            raise

    def kept(self, raw: bytes, problem: str, known: T | None) -> T | None:
        """Return what is kept of an object that does not decode; None: it counts as absent.

        Args:
            raw: the object.
            problem: why the object does not decode.
            known: the last version of the object that decoded.
        """
        try:
            part = reading.read_in_part(msgspec.json.decode(raw), self.type, known)
        except (msgspec.DecodeError, RecursionError):
            return known
        if part is None or known is not None:
            return part
        return self.held(part, problem) if self.held is not None else None

    def decode_page(self, body: bytes) -> ObjectList[T]:
        """Decode one page of a list, each object as `decode` does.

        Raises:
            msgspec.DecodeError: the page is no list, or an object cannot be decoded.
        """
        try:
            return self.list_decoder.decode(body)
        except RecursionError:  # what is nested so deeply is hardly read by anybody
            body = cut(body)
        except msgspec.ValidationError:
            pass  # one by one
        page = RAW_PAGES.decode(body)
        return ObjectList(
            metadata=page.metadata, items=[self.decode(raw) for raw in page.items or ()]
        )

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Build the path of an object, or of the collection when there is no name.

        Without a namespace, the collection of a namespaced kind covers all namespaces.

        Raises ValueError for an object of a namespaced kind without a namespace, and NotFoundError
        for a name that no object can have (`IsValidPathSegmentName` of k8s.io/apimachinery 0.36):
        the API server reads an encoded slash as a slash, so an invented name could lead to other
        objects.
        """
        if name in (".", "..") or "/" in name or "%" in name:
            raise NotFoundError(404, "NotFound", f"no {self.kind} can be called {name!r}")
        path = self.root
        if self.namespaced and namespace:
            path += f"/namespaces/{quote(namespace, safe='')}"
        elif self.namespaced and name:
            raise ValueError(f"{self.kind} {name!r} needs a namespace")
        path += f"/{self.plural}"
        if name:
            path += f"/{quote(name, safe=':')}"
        return f"{path}/{subresource}" if subresource else path


def metadata_only(resource: Resource[Any]) -> Resource[objects.KubeObject]:
    """Return the same kind with only metadata: the API server sends nothing else."""
    return resource.decoded_as(objects.KubeObject, partial=True)


def own_kind(kind: type[OwnT], rescue: Callable[[OwnT, str], OwnT] | None = None) -> Resource[OwnT]:
    """Return one of Bindery's own kinds, as its struct declares it."""
    info = kind.kind_info
    return Resource(
        names.GROUP, names.VERSION, info.plural, info.kind, info.namespaced, kind, rescue=rescue
    )


PODS: Final = Resource("", "v1", "pods", "Pod", True, objects.Pod, held=objects.held_pod)
NODES: Final = Resource("", "v1", "nodes", "Node", False, objects.Node)
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", False, objects.Namespace)
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap", True, objects.ConfigMap)
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease", True, objects.Lease)
PRIORITY_CLASSES: Final = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, objects.PriorityClass
)
EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event", True, objects.KubeObject)
# Pods and gangs of an unreadable object get the reason, instead of "it does not exist".
POD_GROUPS: Final = own_kind(PodGroup, rescue=objects.unreadable)
QUEUES: Final = own_kind(Queue, rescue=objects.unreadable)
BIND_REQUESTS: Final = own_kind(BindRequest)
