"""What of volumes, devices, cards and stages must not be left at rest."""

from collections import Counter
from collections.abc import Iterator

from bindery.api.hami import assignment, names
from bindery.api.hami.lock import decode
from bindery.api.names import SUB_GROUP_LABEL
from bindery.binder.plugins.volumes.writes import CHOSEN_FOR, SELECTED_NODE
from bindery.kube.objects.claims import FINALIZER, RESOURCE_CLAIMS, ResourceClaim
from bindery.kube.objects.resources import NODES
from bindery.kube.objects.storage import CLAIMS, VOLUMES
from bindery.kube.objects.watched import Pod
from tests.histories.apiserver.server import ModelApiServer
from tests.histories.needs import bodies
from tests.histories.needs.cards import lock_of
from tests.histories.needs.controller import is_alive
from tests.histories.needs.judge import gang_of
from tests.histories.plan import Plan
from tests.histories.reading import all_of

_PROBE = "probe-"
_ABOVE_ALL = 1_000_000


def left_over(
    server: ModelApiServer, plan: Plan, pods: list[Pod], disturbed: set[str]
) -> list[str]:
    """Return what is left that must not be, and which later stages are bound in part."""
    return [
        *_of_volumes(server),
        *_of_devices(server, pods),
        *_of_cards(server, pods),
        *_of_stages(plan, pods, disturbed),
    ]


def _of_volumes(server: ModelApiServer) -> Iterator[str]:
    for claim in all_of(server, CLAIMS):
        if not claim.spec.volume_name:
            for key in (SELECTED_NODE, CHOSEN_FOR):
                if key in claim.metadata.annotations:
                    yield f"claim {claim.metadata.name} is not bound and has {key}"
    ever_bound = {
        change.key[1]
        for change in server.store.of(server.kind("persistentvolumes")).changes
        if (change.version.object.get("status") or {}).get("phase") == "Bound"
    }
    for volume in all_of(server, VOLUMES):
        reference = volume.spec.claim_ref
        is_chosen = CHOSEN_FOR in volume.metadata.annotations  # by the binder, not by its driver
        if reference is not None and is_chosen and volume.metadata.name not in ever_bound:
            yield f"volume {volume.metadata.name} is kept for claim {reference.name}"


def _of_devices(server: ModelApiServer, pods: list[Pod]) -> Iterator[str]:
    by_uid = {pod.metadata.uid: pod for pod in pods}
    for claim in all_of(server, RESOURCE_CLAIMS):
        yield from _of_claim(claim, by_uid)
    for pod in pods:
        if not pod.spec.node_name and pod.status.extended_resource_claim_status is not None:
            yield f"{pod.metadata.name} is not bound and shows a claim"


def _of_claim(claim: ResourceClaim, pods: dict[str, Pod]) -> Iterator[str]:
    name, status = claim.metadata.name, claim.status
    for user in status.reserved_for:
        pod = pods.get(user.uid)
        if pod is None or not pod.spec.node_name:
            what = "is gone" if pod is None else "is not bound"
            yield f"claim {name} is reserved for {user.name}, which {what}"
    if status.allocation is not None and not status.reserved_for:
        yield f"claim {name} is allocated to no pod"
    if status.allocation is None and FINALIZER in claim.metadata.finalizers:
        yield f"claim {name} is not allocated and protected"


def _of_cards(server: ModelApiServer, pods: list[Pod]) -> Iterator[str]:
    by_name = {(pod.metadata.namespace, pod.metadata.name): pod for pod in pods}
    for node in all_of(server, NODES):
        text = lock_of(node.metadata.annotations)
        if not text:
            continue
        lock = decode(text)
        holder = by_name.get((lock.namespace, lock.name))
        is_here = holder is not None and holder.spec.node_name == node.metadata.name
        phase = holder.metadata.annotations.get(names.BIND_PHASE) if holder is not None else ""
        is_over = phase != names.BindPhase.ALLOCATING
        if holder is None or not is_here or is_over or not is_alive(holder):
            yield f"{node.metadata.name} is locked by {text}"
    for pod in pods:
        if not pod.spec.node_name:
            keys = {
                *assignment.PROTOCOL_KEYS,
                names.DEVICES_RECORD,
            } & pod.metadata.annotations.keys()
            for key in sorted(keys):
                yield f"{pod.metadata.name} is not bound and has {key}"


def _of_stages(plan: Plan, pods: list[Pod], disturbed: set[str]) -> Iterator[str]:
    bound: Counter[str] = Counter()
    for pod in pods:
        if pod.metadata.labels.get(SUB_GROUP_LABEL) == bodies.WORKERS:
            bound[gang_of(pod)] += bool(pod.spec.node_name) and pod.status.phase != "Failed"
    for gang in plan.gangs:
        stage = gang.needs.stage if gang.needs is not None else None
        if stage is None or gang.name in disturbed:
            continue
        if 0 < bound[gang.name] < stage.workers:
            yield f"{bound[gang.name]} of {stage.workers} workers of {gang.name} are bound"
