"""Resource quotas of namespaces, as far as they are read.

Watched by the scheduler's plugin `hami`. The API server takes any qualified name as a key and
enforces only those that it knows itself.
"""

from typing import Final

import msgspec

from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import KubeObject


class QuotaSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """What all pods of the namespace together may have."""

    hard: dict[str, str] | None = None


class ResourceQuota(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    """`v1.ResourceQuota`."""

    spec: QuotaSpec = msgspec.field(default_factory=QuotaSpec)


RESOURCE_QUOTAS: Final = Resource("", "v1", "resourcequotas", "ResourceQuota", True, ResourceQuota)
