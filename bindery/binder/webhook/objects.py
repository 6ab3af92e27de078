"""The fields that the webhook reads of its Secret, its two configurations, and nodes."""

import base64
import binascii
from typing import Final

import msgspec

from bindery.binder.webhook.certificates import Bundle
from bindery.kube.objects.resources import NODES, Resource
from bindery.kube.objects.watched import KubeObject


class Secret(KubeObject, frozen=True, rename="camel", kw_only=True):
    """A Secret with its values in base64, as the API server sends them."""

    data: dict[str, str] | None = None


class ClientConfig(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The certificate authorities that the API server trusts when it calls the webhook."""

    ca_bundle: str = ""


class Webhook(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One webhook of a configuration."""

    name: str
    client_config: ClientConfig = msgspec.field(default_factory=ClientConfig)


class WebhookConfiguration(KubeObject, frozen=True, rename="camel", kw_only=True):
    """A ValidatingWebhookConfiguration or a MutatingWebhookConfiguration."""

    webhooks: list[Webhook] | None = None


class Offers(msgspec.Struct, frozen=True, kw_only=True):
    """The resources of a node."""

    allocatable: dict[str, str] | None = None


class OfferingNode(KubeObject, frozen=True, kw_only=True):
    """A node with its labels and resources, without images and conditions."""

    status: Offers = msgspec.field(default_factory=Offers)


OFFERING_NODES: Final = NODES.decoded_as(OfferingNode)
SECRETS: Final = Resource("", "v1", "secrets", "Secret", True, Secret)
CONFIGURATIONS: Final[tuple[Resource[WebhookConfiguration], ...]] = tuple(
    Resource(
        "admissionregistration.k8s.io", "v1", f"{kind.lower()}s", kind, False, WebhookConfiguration
    )
    for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
)


def bundle_in(secret: Secret) -> Bundle:
    """Return the certificates in `secret`; damaged values count as missing."""
    return Bundle.of({name: _decoded(text) for name, text in (secret.data or {}).items()})


def encoded(text: str) -> str:
    """Return `text` in base64."""
    return base64.b64encode(text.encode()).decode()


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
