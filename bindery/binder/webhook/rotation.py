"""Keeps the webhook's certificates up to date in a Secret, the server and the webhook
configurations.

Run by `process` in every replica at once, without a leader. The Secret is written only in the
version that was read, so of two replicas that renew, one succeeds and the other reads its result.
All replicas serve the certificate in the Secret, and all write its authorities into the webhook
configurations. Invariant: a certificate is served only after it was written to the Secret.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog

from bindery.binder.webhook.certificates import Bundle, Lifetimes, next_check_s, renewed
from bindery.binder.webhook.objects import (
    CONFIGURATIONS,
    SECRETS,
    Secret,
    WebhookConfiguration,
    bundle_in,
    encoded,
)
from bindery.kube.client import Client, PatchKind
from bindery.kube.errors import AlreadyExistsError, ConflictError, KubeError, NotFoundError
from bindery.kube.http.outages import log_failure
from bindery.kube.objects.resources import Resource
from bindery.kube.watches.reflector import Change, EventType, Reflector

_log: Final = structlog.get_logger(__name__)

_RETRY_S: Final = 2.0
_LONGEST_PAUSE_S: Final = 3600.0
_MANAGED_BY: Final = {"app.kubernetes.io/managed-by": "bindery-webhook"}


@dataclass(frozen=True)
class CertificatePlace:
    """The Secret and configuration of the certificates, and their DNS names."""

    namespace: str
    secret: str
    configuration: str
    """The name of both webhook configurations."""
    hosts: Sequence[str]


class Rotation:
    """Renews, serves and publishes certificates until cancelled.

    `use` is called with the certificate and the key to serve, each time they change.
    """

    def __init__(
        self,
        client: Client,
        place: CertificatePlace,
        lifetimes: Lifetimes,
        use: Callable[[str, str], None],
    ) -> None:
        self._client, self._place, self._lifetimes = client, place, lifetimes
        self._use, self._clock = use, client.environment.now_s
        self._served = ""
        self._woken = asyncio.Event()
        self._secrets = Reflector(
            client,
            SECRETS,
            self._wake,
            namespace=place.namespace,
            field_selector=f"metadata.name={place.secret}",
        )
        self._configurations = [
            Reflector(
                client, resource, self._wake, field_selector=f"metadata.name={place.configuration}"
            )
            for resource in CONFIGURATIONS
        ]

    async def run(self) -> None:
        """Check everything at each change, and when a certificate is due."""
        async with asyncio.TaskGroup() as group:
            mirrors: list[Reflector[Any]] = [self._secrets, *self._configurations]
            for mirror in mirrors:
                group.create_task(mirror.run())
            for mirror in mirrors:
                await mirror.synced.wait()
            while True:
                self._woken.clear()
                pause_s = await self._look()
                try:
                    async with asyncio.timeout(pause_s):
                        await self._woken.wait()
                except TimeoutError:
                    continue

    async def _look(self) -> float:
        """Renew, serve and publish certificates; return the seconds until the next check."""
        if not any(mirror.objects for mirror in self._configurations):
            # Without webhook configurations there are no calls, and a Secret made now would stay
            # after the installation is removed.
            return _LONGEST_PAUSE_S
        try:
            bundle = await self._renew()
            if bundle.certificate != self._served:
                self._use(bundle.certificate, bundle.key)
                self._served = bundle.certificate
                _log.info("a new certificate is served")
            for mirror, resource in zip(self._configurations, CONFIGURATIONS, strict=True):
                for configuration in mirror.objects.values():
                    await self._publish(resource, configuration, bundle.authorities)
        except KubeError as error:
            log_failure(_log, "certificates were not checked", error)
            return _RETRY_S
        return min(_LONGEST_PAUSE_S, next_check_s(bundle, self._lifetimes, self._clock()))

    async def _renew(self) -> Bundle:
        """Return the content of the Secret, after due certificates were renewed."""
        while True:
            secret = await self._read()
            old = bundle_in(secret) if secret is not None else Bundle.of({})
            new = renewed(old, self._place.hosts, self._lifetimes, self._clock())
            if new == old:
                return old
            try:
                await self._write(secret, new)
            except (AlreadyExistsError, ConflictError):  # another replica was faster
                continue
            _log.info("certificates were renewed")
            return new

    async def _read(self) -> Secret | None:
        place = self._place
        try:
            return await self._client.get(SECRETS, place.secret, place.namespace)
        except NotFoundError:
            return None

    async def _write(self, secret: Secret | None, bundle: Bundle) -> None:
        place = self._place
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {
                "name": place.secret,
                "labels": _MANAGED_BY,
                "ownerReferences": list(self._owners()),
            },
            "data": {name: encoded(text) for name, text in bundle.data().items()},
        }
        if secret is None:
            await self._client.create(SECRETS, body, place.namespace)
            return
        body["metadata"]["resourceVersion"] = secret.metadata.resource_version
        await self._client.patch(
            SECRETS,
            place.secret,
            {"metadata": body["metadata"], "data": body["data"]},
            namespace=place.namespace,
        )

    def _owners(self) -> Iterator[dict[str, str]]:
        """Yield the webhook configurations as owners: the Secret is deleted with both."""
        for mirror, resource in zip(self._configurations, CONFIGURATIONS, strict=True):
            for configuration in mirror.objects.values():
                yield {
                    "apiVersion": f"{resource.group}/{resource.version}",
                    "kind": resource.kind,
                    "name": configuration.metadata.name,
                    "uid": configuration.metadata.uid,
                }

    async def _publish(
        self,
        resource: Resource[WebhookConfiguration],
        configuration: WebhookConfiguration,
        authorities: str,
    ) -> None:
        """Write `authorities` into each webhook of the configuration."""
        wanted = encoded(authorities)
        patch = [
            step
            for index, webhook in enumerate(configuration.webhooks or ())
            if webhook.client_config.ca_bundle != wanted
            for step in (
                # The list may have changed meanwhile: then nothing is written, and the next check
                # follows.
                {"op": "test", "path": f"/webhooks/{index}/name", "value": webhook.name},
                {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": wanted},
            )
        ]
        if patch:
            name = configuration.metadata.name
            await self._client.patch(resource, name, patch, kind=PatchKind.JSON)
            _log.info("authorities are published", configuration=name, kind=resource.kind)

    def _wake(self, change: Change[Any]) -> None:
        if change.type is not EventType.DELETED or isinstance(change.object, Secret):
            self._woken.set()
