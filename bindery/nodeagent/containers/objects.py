"""What pods read from the API: ConfigMaps, Secrets, Services, and tokens of their accounts."""

from collections.abc import Mapping
from typing import Final

import msgspec

from bindery.kube.client import Client
from bindery.kube.errors import NotFoundError
from bindery.kube.objects.resources import CONFIG_MAPS, Resource
from bindery.kube.objects.watched import KubeObject
from bindery.kube.watches.reflector import Reflector
from bindery.nodeagent.containers.podspec import RunPod


class ConfigObject(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    """A ConfigMap or a Secret; `binary_data` and a Secret's `data` are in base64."""

    type: str = ""
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None


class ServicePort(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`ServicePort`."""

    name: str = ""
    port: int = 0
    protocol: str = "TCP"


class ServiceSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`ServiceSpec`."""

    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    ports: list[ServicePort] | None = None


class Service(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    """A Service, of which pods get variables."""

    spec: ServiceSpec = msgspec.field(default_factory=ServiceSpec)


SECRETS: Final = Resource("", "v1", "secrets", "Secret", True, ConfigObject)
MAPS: Final = CONFIG_MAPS.decoded_as(ConfigObject)
SERVICES: Final = Resource("", "v1", "services", "Service", True, Service)


class TokenStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`TokenRequestStatus`."""

    token: str = ""
    expiration_timestamp: str | None = None


class TokenRequest(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    """A token of a service account."""

    status: TokenStatus = msgspec.field(default_factory=TokenStatus)


class RuntimeClass(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    """`RuntimeClass`: the name of a configuration of the runtime."""

    handler: str = ""


_TOKENS: Final = Resource("", "v1", "serviceaccounts", "TokenRequest", True, TokenRequest)
_CLASSES: Final = Resource(
    "node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False, RuntimeClass
)


class PodObjects:
    """The objects of pods; `run` mirrors the Services."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._services = Reflector(client, SERVICES, lambda _: None)

    async def run(self) -> None:
        """Mirror Services; does not return."""
        await self._services.run()

    async def services(self) -> Mapping[tuple[str, str], Service]:
        """Return all Services by (namespace, name), when they have been read once."""
        await self._services.synced.wait()
        return self._services.objects

    async def config_map(self, namespace: str, name: str) -> ConfigObject | None:
        """Return a ConfigMap, None if it does not exist; raises KubeError."""
        return await self._get(MAPS, namespace, name)

    async def secret(self, namespace: str, name: str) -> ConfigObject | None:
        """Return a Secret, None if it does not exist; raises KubeError."""
        return await self._get(SECRETS, namespace, name)

    async def handler(self, runtime_class: str | None) -> str:
        """Return the handler of a RuntimeClass, empty without one; raises KubeError."""
        if not runtime_class:
            return ""
        return (await self._client.get(_CLASSES, runtime_class)).handler

    async def token(self, pod: RunPod, audience: str, expires_s: int) -> TokenStatus:
        """Return a token of the account of `pod`, bound to the pod; raises KubeError."""
        meta = pod.metadata
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": [audience] if audience else [],
                "expirationSeconds": expires_s,
                "boundObjectRef": {
                    "apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid,
                },
            },
        }  # fmt: skip
        account = pod.spec.service_account_name or "default"
        created = await self._client.create_below(_TOKENS, account, "token", body, meta.namespace)
        return created.status

    async def _get(
        self, resource: Resource[ConfigObject], namespace: str, name: str
    ) -> ConfigObject | None:
        try:
            return await self._client.get(resource, name, namespace)
        except NotFoundError:
            return None
