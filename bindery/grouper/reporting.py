"""Writes the conditions of upstream's groups: the state of our PodGroups in upstream's words.

Called by `loop` after a gang was planned and written. One write for each group whose conditions
differ; a write that is overtaken fails, and the gang is planned again.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from bindery.api.times import timestamp
from bindery.grouper.metrics import REPORTS
from bindery.grouper.named import UpstreamReport
from bindery.grouper.objects import WrittenGroup
from bindery.grouper.upstream.model import COMPOSITE, POD_GROUP, Adapter, UpstreamGroup
from bindery.grouper.upstream.model import GROUP as UPSTREAM_GROUP
from bindery.grouper.upstream.reports import conditions
from bindery.kube.client import Client
from bindery.kube.errors import ConflictError, NotFoundError
from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import KubeObject

_PLURALS: Final = {POD_GROUP: "podgroups", COMPOSITE: "compositepodgroups"}


@dataclass(frozen=True)
class Reporter:
    """Writes the statuses of upstream's groups."""

    client: Client

    async def report(self, report: UpstreamReport, written: Iterable[WrittenGroup]) -> None:
        """Write what has changed; `written`: our PodGroups of the gang.

        Raises:
            KubeError: a write has failed that may succeed later.
        """
        finding = report.finding(written)
        now = timestamp(self.client.environment.now_s())
        for index, (group, adapter) in enumerate(report.groups):
            wanted = conditions(group, adapter, finding, is_root=index == 0, now=now)
            if wanted is not None:
                await self._write(group, adapter, wanted)

    async def _write(
        self, group: UpstreamGroup, adapter: Adapter, wanted: list[dict[str, object]]
    ) -> None:
        at = group.reference
        kind: Resource[KubeObject] = Resource(
            UPSTREAM_GROUP, adapter.version, _PLURALS[at.kind], at.kind, True, KubeObject
        )
        body = {
            # Another object of the same name, or a newer state of this one, is left alone.
            "metadata": {"uid": at.uid, "resourceVersion": group.resource_version},
            "status": {"conditions": wanted},
        }
        # A change meanwhile comes by the watch, and the gang is planned again.
        with suppress(ConflictError, NotFoundError):
            await self.client.patch(
                kind, at.name, body, namespace=at.namespace, subresource="status"
            )
            REPORTS.inc()
