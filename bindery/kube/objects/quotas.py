"""The fields of resource quotas that are read.

Watched by the scheduler's plugin `hami`. The API server accepts any qualified name as a key, and
enforces only its known names.
"""

from typing import Final

import msgspec

from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import KubeObject


class QuotaSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Limits for the sum over all pods of the namespace."""

    hard: dict[str, str] | None = None


class ResourceQuota(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    """`v1.ResourceQuota`."""

    spec: QuotaSpec = msgspec.field(default_factory=QuotaSpec)


RESOURCE_QUOTAS: Final = Resource("", "v1", "resourcequotas", "ResourceQuota", True, ResourceQuota)
