"""The components of the installation and their states: the answer of `bindery status`.

Each of the scheduler, the binder and the grouper works if a process holds its Lease. The webhook
has no Lease: it works if it answers the API server. Imports neither pydantic nor the engine.
"""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from bindery.answers.leaders import Leader, Leading, confirmed, read_leader
from bindery.answers.rows import Row
from bindery.api.names import (
    API_VERSION,
    BINDER_LEASE,
    GROUP,
    GROUPER_LEASE,
    NODE_POOL_LABEL,
    scheduler_lease,
)
from bindery.kube.errors import ApiError, ForbiddenError, KubeError
from bindery.kube.objects.resources import NODES, QUEUES, Resource, metadata_only
from bindery.kube.objects.watched import KubeObject

if TYPE_CHECKING:
    from bindery.kube.client import Client  # imports the HTTP library

_PROBE: Final = "bindery-status-probe"
_NO_PARENT: Final = "bindery-status-probe-parent"
"""The name of a Queue that does not exist; the webhook warns about a parent with this name."""
_OF_QUEUES: Final = f"queues.validating.{GROUP}"
"""The webhook that reviews Queues."""


@dataclass(frozen=True)
class WebhookState:
    """Whether the webhook answers the API server."""

    state: str
    """`answers`, `does not answer`, `not installed` or `unknown`."""
    detail: str = ""


@dataclass(frozen=True)
class ComponentState:
    """One component."""

    name: str
    found: Leader | WebhookState
    optional: bool = False
    """Whether Bindery works without it."""

    @property
    def works(self) -> bool:
        """Whether the component works; True if it is not installed and optional, or not visible."""
        if isinstance(self.found, WebhookState):
            return self.found.state != "does not answer"
        if self.found.leads or self.found.state is Leading.FORBIDDEN:
            return True
        return self.optional and self.found.state is Leading.ABSENT


class _Webhook(msgspec.Struct, frozen=True):
    name: str


class _Webhooks(KubeObject, frozen=True, kw_only=True):
    """The fields of a ValidatingWebhookConfiguration that are read here."""

    webhooks: list[_Webhook] | None = None


_CONFIGURATIONS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    False,
    _Webhooks,
)


async def read_components(client: "Client", namespace: str) -> list[ComponentState]:
    """Return the components of the cluster; `namespace`: the namespace of the Leases.

    Raises:
        KubeError: the cluster does not answer.
    """
    pools = await _pools(client)
    leases = [
        *(("scheduler" + (f" of pool {p}" if p else ""), scheduler_lease(p), False) for p in pools),
        ("binder", BINDER_LEASE, False),
        ("grouper", GROUPER_LEASE, True),
    ]

    async def read(lease: str) -> Leader:
        return await confirmed(client, await read_leader(client, lease, namespace))

    *leaders, webhook = await asyncio.gather(
        *(read(lease) for _, lease, _ in leases), probe_webhook(client)
    )
    found = [
        ComponentState(name, leader, optional)
        for (name, _, optional), leader in zip(leases, leaders, strict=True)
        if isinstance(leader, Leader)
    ]
    assert isinstance(webhook, WebhookState), "the last result is its own"
    return [*found, ComponentState("webhook", webhook, optional=True)]


async def _pools(client: "Client") -> list[str]:
    """Return the node pools; only the default pool if the user may not read nodes."""
    try:
        nodes = await client.list(metadata_only(NODES))
    except ForbiddenError:
        return [""]
    return sorted({node.metadata.labels.get(NODE_POOL_LABEL, "") for node in nodes}) or [""]


async def probe_webhook(client: "Client") -> WebhookState:
    """Return whether the webhook warns, in a dry run, about a Queue whose parent does not exist."""
    probe = {
        "apiVersion": API_VERSION,
        "kind": "Queue",
        "metadata": {"name": _PROBE},
        "spec": {"parent": _NO_PARENT},
    }
    try:
        warnings = await client.try_create(QUEUES, probe)
    except ApiError as error:
        text = str(error)
        if "failed calling webhook" in text:
            return WebhookState("does not answer", text)
        if isinstance(error, ForbiddenError):
            return WebhookState("unknown", "this user may not create Queues")
        return WebhookState("unknown", text)
    if any(_NO_PARENT in warning for warning in warnings):
        return WebhookState("answers")
    return await _went_without(client)


async def _went_without(client: "Client") -> WebhookState:
    """Return the state of a webhook that did not answer a request which the API server accepted."""
    try:
        installed = await client.list(_CONFIGURATIONS)
    except KubeError as error:
        return WebhookState("unknown", f"not installed, or does not answer ({error})")
    if any(each.name == _OF_QUEUES for one in installed for each in one.webhooks or ()):
        return WebhookState("does not answer", "the API server goes on without it")
    return WebhookState("not installed")


def component_row(each: ComponentState) -> Row:
    """Return a component as one row of `bindery status`."""
    found = each.found
    row = {
        "component": each.name,
        "works": each.works,
        "state": found.state if isinstance(found, WebhookState) else found.state.value,
        "holder": "",
        "since": None,
        "leadsFor": "",
        "renewed": None,
        "renewedAgo": "",
        "version": "",
        "configuration": None,
        "detail": "",
    }
    if isinstance(found, WebhookState):
        return {**row, "detail": found.detail}
    row["holder"], row["since"], row["renewed"] = found.holder, found.since, found.renewed
    row["leadsFor"] = found.led_for
    row["renewedAgo"] = f"{found.renewed_ago} ago" if found.renewed else ""
    row["detail"] = "" if found.leads else found.text()
    if found.publication is not None:
        row["version"] = found.publication.version
        row["configuration"] = {
            "hash": found.publication.hash,
            "changes": found.publication.changes,
            "problem": found.publication.problem or "",
        }
    return row
