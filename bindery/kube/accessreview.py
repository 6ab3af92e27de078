"""Asks an API server for the permissions of this process's account.

Kubernetes' default roles allow every account to read its own permissions. Called before watches of
kinds for which the role may lack the right: a watch without the right causes repeated errors in two
logs.
"""

from typing import Any, Final

import msgspec

from bindery.kube.client import Client
from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import KubeObject


class _Status(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Review(KubeObject, frozen=True, kw_only=True):
    """`authorization.k8s.io/v1` SelfSubjectAccessReview."""

    status: _Status = _Status()


_REVIEWS: Final = Resource(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    False,
    _Review,
)


async def may_watch(client: Client, resource: Resource[Any]) -> bool:
    """Return whether this account may list and watch all objects of `resource`.

    Raises:
        KubeError: the API server cannot be asked.
    """
    return await may(client, resource, "list") and await may(client, resource, "watch")


async def may(client: Client, resource: Resource[Any], verb: str, namespace: str = "") -> bool:
    """Return whether the user of `client` may do `verb` with objects of `resource`.

    `namespace`: only in it; empty: in all namespaces.

    Raises:
        KubeError: the API server cannot be asked, or does not accept the user.
    """
    attributes = {"group": resource.group, "resource": resource.plural, "verb": verb}
    if namespace:
        attributes["namespace"] = namespace
    body = {
        "apiVersion": _REVIEWS.api_version,
        "kind": _REVIEWS.kind,
        "spec": {"resourceAttributes": attributes},
    }
    return (await client.create(_REVIEWS, body)).status.allowed
