"""The BindRequest of one Statement, or of several that share it. Pure; used by writer.py."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from bindery.api import exclusive, keptroom, numaplacement
from bindery.api.bindrequest import few_names
from bindery.api.names import API_VERSION, ROLL_BACK_FINALIZER, STATEMENT_LABEL
from bindery.kube.objects.bindrequests import (
    BindRequest,
    BindRequestSpec,
    CommittedStatement,
    PodBinding,
    RequestSummary,
    StatementKey,
)
from bindery.kube.objects.declaring import to_wire
from bindery.scheduler.commit.drafts import StatementDraft

_ONLY_RECORDED = frozenset({numaplacement.PLUGIN, keptroom.PLUGIN_DATA, exclusive.PLUGIN_DATA})
"""Plugin data that the binder writes only together with a pod's node."""

Content = list[tuple[StatementKey, list[tuple[str, str]]]]
"""The Statements of a request, each with the UIDs of its pods and their nodes."""


def content_of(statements: Sequence[StatementDraft | CommittedStatement]) -> Content:
    """Return the content of a request with `statements`."""
    return [
        (each.key, [(pod.pod_uid, pod.selected_node) for pod in each.spec.pods])
        for each in statements
    ]


@dataclass(frozen=True)
class BindRequestDraft:
    """A BindRequest to create, with one Statement or several of the same namespace."""

    statements: tuple[StatementDraft, ...]

    @property
    def namespace(self) -> str:
        """The namespace of the request."""
        return self.statements[0].namespace

    @property
    def name(self) -> str:
        """The name of the request: that which its first Statement would have alone."""
        return self.statements[0].name

    @property
    def keys(self) -> frozenset[StatementKey]:
        """The identities of its Statements."""
        return frozenset(each.key for each in self.statements)

    @property
    def content(self) -> Content:
        """What distinguishes it from another request with its name."""
        return content_of(self.statements)

    def to_object(self) -> dict[str, object]:
        """Return the object to create."""
        first = self.statements[0]
        metadata = first.metadata()
        if len(self.statements) > 1:
            # The other labels are about one Statement or pod.
            shared = set.intersection(*(set(each.labels.items()) for each in self.statements))
            metadata["labels"] = {key: value for key, value in shared if key != STATEMENT_LABEL}
            metadata.pop("ownerReferences", None)
            if owners := self._owners():
                metadata["ownerReferences"] = owners
        pods = (pod for each in self.statements for pod in each.spec.pods)
        if any(map(_is_prepared, pods)):
            metadata["finalizers"] = [ROLL_BACK_FINALIZER]
        spec = BindRequestSpec(
            statements=[each.spec for each in self.statements],
            summary=self._summary(),
            backoff_limit=first.backoff_limit,
            fencing_token=first.fencing_token,
        )
        return {
            "apiVersion": API_VERSION,
            "kind": "BindRequest",
            "metadata": metadata,
            "spec": to_wire(spec),
        }

    def _owners(self) -> list[dict[str, str]]:
        """Return the owner references; none if one Statement has no owner.

        The garbage collector deletes an object when all its owners are gone, and then that
        Statement would go too.
        """
        owners = [each.owner for each in self.statements]
        if not all(owner.kind for owner in owners):
            return []
        return [owner.to_reference() for owner in dict.fromkeys(owners)]

    def _summary(self) -> RequestSummary:
        specs = [each.spec for each in self.statements]
        gangs = (spec.pod_group.name for spec in specs if spec.pod_group is not None)
        pods = [pod for spec in specs for pod in spec.pods]
        return RequestSummary(
            gangs=few_names(gangs),
            pods=len(pods),
            nodes=few_names(pod.selected_node for pod in pods),
        )


def _is_prepared(pod: PodBinding) -> bool:
    """Whether the binder may write to other objects, or to the pod, before it binds the pod."""
    return bool(pod.selected_gpu_groups) or not pod.plugin_data.keys() <= _ONLY_RECORDED


def as_stored(draft: StatementDraft) -> CommittedStatement:
    """Return the Statement of `draft` as a watch shows it when it is alone in its request."""
    request = msgspec.convert(BindRequestDraft((draft,)).to_object(), BindRequest)
    (statement,) = request.each()
    return statement
