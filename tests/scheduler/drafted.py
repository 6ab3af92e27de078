"""Drafts of Statements, as a cycle would yield them, without a cycle."""

from collections.abc import Mapping, Sequence

from bindery.api.names import API_VERSION, STATEMENT_LABEL
from bindery.kube.objects.bindrequests import PodBinding, PodGroupReference, StatementSpec
from bindery.scheduler.commit.drafts import Owner, StatementDraft
from bindery.scheduler.model.jobs import Uid


def draft(
    name: str,
    *,
    namespace: str = "team",
    pods: int = 1,
    part: int = 0,
    parts: int = 1,
    after: str | None = None,
    min_bound: int | None = None,
    gang: str | None = None,
    owner_kind: str = "PodGroup",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    nodes: Sequence[str] = ("node",),
    token: int = 0,
) -> StatementDraft:
    """Return the draft of the Statement `name`-1, of the gang `gang` (default: `name`)."""
    gang = name if gang is None else gang
    version = API_VERSION if owner_kind == "PodGroup" else "v1"
    identity = f"{name}-1"
    return StatementDraft(
        namespace=namespace,
        name=f"{name}-request" + (f"-p{part}" if parts > 1 else ""),
        spec=StatementSpec(
            pods=[
                PodBinding(
                    pod_name=f"{name}-{index}",
                    pod_uid=f"uid-{name}-{index}",
                    selected_node=nodes[index % len(nodes)],
                )
                for index in range(part * pods, (part + 1) * pods)
            ],
            pod_group=PodGroupReference(name=gang, uid=f"uid-{gang}") if gang else None,
            id=identity,
            part=part,
            parts=parts,
            after=after,
            min_bound=min_bound,
        ),
        backoff_limit=5,
        fencing_token=token,
        labels={STATEMENT_LABEL: identity, **(labels or {})},
        annotations=dict(annotations or {}),
        owner=Owner(gang or name, Uid(f"uid-{gang or name}"), version, owner_kind),
        tasks=(),
    )
