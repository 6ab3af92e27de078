"""The variables of a container, and its command with their values.

Source: `makeEnvironmentVariables` of the kubelet, Kubernetes 1.36.
"""

import base64
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from bindery.nodeagent.containers import downward
from bindery.nodeagent.containers.downward import PodSurroundings
from bindery.nodeagent.containers.errors import CREATE_CONFIG, StartError
from bindery.nodeagent.containers.objects import ConfigObject, PodObjects, Service
from bindery.nodeagent.containers.podspec import (
    KeySelector,
    ObjectSelector,
    RunContainer,
    RunPod,
    SourcedVariable,
)
from bindery.nodecore.podsync.expansion import expand

_MASTER: Final = ("default", "kubernetes")
_NONE: Final = ("", "None")

Read = Callable[[str, str], Awaitable[ConfigObject | None]]


@dataclass
class _Reading:
    """The ConfigMaps and Secrets of one container, each read once."""

    pod: RunPod
    objects: PodObjects
    maps: dict[str, ConfigObject] = field(default_factory=dict)
    secrets: dict[str, ConfigObject] = field(default_factory=dict)

    async def map(self, wanted: ObjectSelector | KeySelector) -> Mapping[str, str] | None:
        """Return the data of a ConfigMap; None if an optional one does not exist."""
        found = await self._read(wanted, self.maps, self.objects.config_map, "configmap")
        return None if found is None else found.data or {}

    async def secret(self, wanted: ObjectSelector | KeySelector) -> Mapping[str, str] | None:
        """Return the data of a Secret as text; None if an optional one does not exist."""
        found = await self._read(wanted, self.secrets, self.objects.secret, "secret")
        if found is None:
            return None
        return {
            key: base64.b64decode(text).decode(errors="surrogateescape")
            for key, text in (found.data or {}).items()
        }

    async def _read(
        self,
        wanted: ObjectSelector | KeySelector,
        known: dict[str, ConfigObject],
        read: Read,
        kind: str,
    ) -> ConfigObject | None:
        if wanted.name not in known:
            found = await read(self.pod.metadata.namespace, wanted.name)
            if found is None:
                if wanted.optional:
                    return None
                raise StartError(CREATE_CONFIG, f'{kind} "{wanted.name}" not found')
            known[wanted.name] = found
        return known[wanted.name]


async def variables(
    pod: RunPod, container: RunContainer, objects: PodObjects, around: PodSurroundings
) -> dict[str, str]:
    """Return the variables of a container, in the order of their declaration.

    Raises:
        StartError: an object or a key is missing.
        KubeError: an object cannot be read.
    """
    reading = _Reading(pod, objects)
    services = (await objects.services()).values()
    of_services = service_variables(
        services, pod.metadata.namespace, with_links=pod.spec.enable_service_links
    )
    found: dict[str, str] = {}
    for source in container.env_from or ():
        data: Mapping[str, str] | None = None
        if source.config_map_ref is not None:
            data = await reading.map(source.config_map_ref)
        elif source.secret_ref is not None:
            data = await reading.secret(source.secret_ref)
        found |= {source.prefix + key: value for key, value in (data or {}).items()}
    for variable in container.env or ():
        value = await _value(pod, container, variable, reading, around)
        if variable.value:
            value = expand(variable.value, found, of_services)
        if value is not None:
            found[variable.name] = value
    return {**found, **{key: text for key, text in of_services.items() if key not in found}}


async def _value(
    pod: RunPod,
    container: RunContainer,
    variable: SourcedVariable,
    reading: _Reading,
    around: PodSurroundings,
) -> str | None:
    """Return the value of a variable from its source; None if an optional one is missing."""
    source = variable.value_from
    if variable.value or source is None:
        return ""
    if source.field_ref is not None:
        return downward.field_value(pod, source.field_ref.field_path, around)
    if source.resource_field_ref is not None:
        return downward.resource_value(pod, container, source.resource_field_ref, around)
    if source.config_map_key_ref is not None:
        key = source.config_map_key_ref
        return _of_key(key, await reading.map(key), "ConfigMap", pod.metadata.namespace)
    if source.secret_key_ref is not None:
        key = source.secret_key_ref
        return _of_key(key, await reading.secret(key), "Secret", pod.metadata.namespace)
    return ""


def _of_key(
    wanted: KeySelector, data: Mapping[str, str] | None, kind: str, namespace: str
) -> str | None:
    if data is None:
        return None
    if wanted.key in data:
        return data[wanted.key]
    if wanted.optional:
        return None
    raise StartError(
        CREATE_CONFIG, f"couldn't find key {wanted.key} in {kind} {namespace}/{wanted.name}"
    )


def service_variables(
    services: Iterable[Service], namespace: str, *, with_links: bool
) -> dict[str, str]:
    """Return the variables of the Services of `namespace` and of the API server's own.

    `with_links`: whether the pod wants those of its namespace.
    """
    chosen: dict[str, Service] = {}
    for service in services:
        meta = service.metadata
        if service.spec.cluster_ip in _NONE:
            continue
        if meta.namespace == namespace and with_links:
            chosen[meta.name] = service
        elif (meta.namespace, meta.name) == _MASTER:
            chosen.setdefault(meta.name, service)
    found: dict[str, str] = {}
    for name in sorted(chosen):
        found |= _of_service(chosen[name])
    return found


def _of_service(service: Service) -> dict[str, str]:
    prefix = service.metadata.name.upper().replace("-", "_")
    address, ports = service.spec.cluster_ip, service.spec.ports or []
    shown = f"[{address}]" if ":" in address else address
    found = {f"{prefix}_SERVICE_HOST": address}
    for index, port in enumerate(ports):
        if index == 0:
            found[f"{prefix}_SERVICE_PORT"] = str(port.port)
            url = f"{port.protocol.lower()}://{shown}:{port.port}"
            found[f"{prefix}_PORT"] = url
        if port.name:
            suffix = port.name.upper().replace("-", "_")
            found[f"{prefix}_SERVICE_PORT_{suffix}"] = str(port.port)
        base = f"{prefix}_PORT_{port.port}_{port.protocol.upper()}"
        found[base] = f"{port.protocol.lower()}://{shown}:{port.port}"
        found[f"{base}_PROTO"] = port.protocol.lower()
        found[f"{base}_PORT"] = str(port.port)
        found[f"{base}_ADDR"] = address
    return found
