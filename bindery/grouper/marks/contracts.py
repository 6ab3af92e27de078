"""Pods that others have marked as gangs: by KAI-Scheduler's contract, by Volcano's, by Kueue's.

Operators with a closed list of schedulers write such marks. A marked pod belongs to the gang of its
mark, whatever its owner is. Where the mark names an object and its kind is installed, the object
has the needs of the gang.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from bindery.api import names
from bindery.api.shown import quoted
from bindery.api.states import ENDED_POD_PHASES
from bindery.grouper.marks import kai, volcano
from bindery.grouper.marks.foreign import Body, Loss, Translation
from bindery.grouper.table import settings
from bindery.grouper.table.facts import PodFacts, Reference, reference_of
from bindery.grouper.table.groups import Group, GroupPlan, Problem, ProblemReason
from bindery.grouper.table.settings import Setting
from bindery.grouper.table.steps import Notes, Step
from bindery.grouper.table.walk import Link, link_of, link_of_pod
from bindery.kube.objects.declaring import to_wire
from bindery.kube.objects.models import validated
from bindery.kube.objects.podgroups import Mark, Member, PodGroupSpec

KUEUE_COUNT: Final = "kueue.x-k8s.io/pod-group-total-count"

_NODE_POOL: Final = Setting(
    (*settings.NODE_POOL.keys, kai.NODE_POOL_LABEL), settings.NODE_POOL.read
)
_MINIMUM: Final = Setting((*settings.MIN_MEMBER.keys, KUEUE_COUNT), settings.MIN_MEMBER.read)


@dataclass(frozen=True)
class NamedKind:
    """The kind of the object that a mark names."""

    group: str
    version: str
    kind: str


@dataclass(frozen=True)
class Contract:
    """One way to mark pods."""

    name: str
    """Before the names of our PodGroups."""
    annotations: tuple[str, ...] = ()
    """Annotations of pods that name the gang, the best first."""
    labels: tuple[str, ...] = ()
    """Labels of pods that name the gang."""
    kind: NamedKind | None = None
    """The object with the name of the gang."""
    translate: Callable[[Body, Sequence[Mapping[str, str]]], Translation] | None = None
    """Returns the spec for that object and the labels of the pods."""
    leaves: tuple[str, ...] = ()
    """Labels of pods that are left to the rows of the table, which know more than the mark."""

    def gang_of(self, pod: PodFacts) -> str:
        """Return the name of the gang of `pod`; "" if it is not marked so."""
        if any(key in pod.labels for key in self.leaves):
            return ""
        texts = [pod.annotations.get(key) for key in self.annotations]
        texts += [pod.labels.get(key) for key in self.labels]
        return next((text for text in texts if text), "")

    def members(self, gang: str) -> tuple[Member, ...]:
        """Return what selects the pods of `gang`."""
        return (
            *(Member(annotation=Mark(key=key, value=gang)) for key in self.annotations),
            *(Member(label=Mark(key=key, value=gang)) for key in self.labels),
        )


CONTRACTS: Final = (
    Contract(
        "kai",
        annotations=(kai.POD_GROUP_ANNOTATION,),
        kind=NamedKind(kai.GROUP, "v2alpha2", "PodGroup"),
        translate=lambda body, _pods: kai.spec_of(body),
    ),
    Contract(
        "volcano",
        annotations=volcano.GROUP_NAME_ANNOTATIONS,
        kind=NamedKind(volcano.GROUP, "v1beta1", "PodGroup"),
        translate=volcano.spec_of,
        # Its PodGroup has a minimum of 1 if the leader comes first: the workers would come singly.
        leaves=("leaderworkerset.sigs.k8s.io/name",),
    ),
    Contract("kueue", labels=names.MARK_LABELS),
)


@dataclass(frozen=True)
class MarkedGang:
    """The pods with one mark, and what is known around them."""

    contract: Contract
    name: str
    namespace: str
    pods: Sequence[PodFacts]
    body: Body | None = None
    """The object that the mark names."""
    is_kind_installed: bool = False
    """Whether the kind of that object is installed: then pods wait for the object."""


def contract_of(pod: PodFacts) -> tuple[Contract, str] | None:
    """Return the contract that `pod` is marked by, and the name of its gang."""
    for contract in CONTRACTS:
        name = contract.gang_of(pod)
        if name:
            return contract, name
    return None


def is_left_to_owners(pod: PodFacts) -> bool:
    """Return whether `pod` is in no gang that it names to the grouper.

    KAI-Scheduler's key for skipping means that the pods are marked already, so only ours counts.
    """
    skips = (pod.annotations.get(names.SKIP_GROUPER_KEY), pod.labels.get(names.SKIP_GROUPER_KEY))
    return names.POD_GROUP_ANNOTATION in pod.annotations or "true" in skips


def plan(gang: MarkedGang) -> GroupPlan:
    """Return the PodGroup of a marked gang; none while the object of the mark is awaited."""
    if not gang.pods:
        return GroupPlan()
    no_name = names.name_problem(gang.name)
    if no_name:
        message = f"it is marked as a pod of gang {quoted(gang.name)}: {no_name}"
        problem = Problem(_oldest(gang.pods).reference, ProblemReason.INVALID_VALUE, message)
        return GroupPlan(problems=(problem,))
    if gang.body is None and gang.is_kind_installed:
        assert gang.contract.kind is not None, "only a contract with a kind has one installed"
        problem = missing_group(gang.pods, gang.name, gang.contract.kind.group)
        return GroupPlan(problems=(problem,))
    notes = Notes()
    owner = _owner(gang)
    spec: dict[str, Any] = {}
    if gang.body is not None and gang.contract.translate is not None:
        labels = [pod.labels for pod in gang.pods]
        translation = gang.contract.translate(gang.body, labels)
        spec = dict(translation.spec)
        notes.problems |= {_lost(gang.body, loss) for loss in translation.losses}
    notes.sources |= {key: str(owner) for key in spec}
    asked = notes.take(_asked(gang, spec))
    spec |= asked
    try:
        checked = validated(
            PodGroupSpec, {**spec, "members": to_wire(gang.contract.members(gang.name))}
        )
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        message = f"no PodGroup can be made of it: {place}: {first['msg']}"
        problem = Problem(owner, ProblemReason.GROUP_NOT_USABLE, message)
        return GroupPlan(problems=(problem,))
    labelled = {
        names.NODE_POOL_LABEL: notes.take(settings.look_up(_NODE_POOL, _links(gang))),
        names.USER_KEY: notes.take(settings.look_up(settings.USER, _links(gang))),
    }
    asks = notes.take(settings.look_up(settings.PROVISIONING, _links(gang)))
    made = Group(
        namespace=gang.namespace,
        name=f"{gang.contract.name}-{gang.name[:200]}".strip("-."),
        owner=owner,
        spec=checked,
        sources=dict(sorted(notes.sources.items())),
        labels={key: found.value for key, found in labelled.items() if found is not None},
        annotations=settings.provisioning_annotation(asks),
        pods=tuple(sorted(pod.uid for pod in gang.pods)),
    )
    return GroupPlan((made,), tuple(sorted(notes.problems)))


def missing_group(pods: Sequence[PodFacts], name: str, api_group: str) -> Problem:
    """Return the problem that the PodGroup `name` does not exist, at the oldest of `pods`."""
    message = (
        f"PodGroup {name} of {api_group}, which it names, does not exist, or a group above it does "
        "not: all pods that name it wait"
    )
    return Problem(_oldest(pods).reference, ProblemReason.GROUP_MISSING, message)


def _asked(gang: MarkedGang, given: Mapping[str, Any]) -> Step[dict[str, Any]]:
    """Return what the labels and annotations of the object and the pods add to `given`."""
    links, notes, spec = list(_links(gang)), Notes(), dict[str, Any]()

    def read(name: str, setting: Setting[Any]) -> Any:
        found = notes.take(settings.look_up(setting, links))
        if found is None:
            return None
        notes.sources[name] = str(found.source)
        return found.value

    if "minMember" not in given and "subGroups" not in given:
        least = read("minMember", _MINIMUM)
        spec["minMember"] = 1 if least is None else least
    if "queue" not in given:
        spec["queue"] = read("queue", settings.QUEUE) or ""
    if "priorityClassName" not in given:
        spec["priorityClassName"] = read("priorityClassName", settings.PRIORITY_CLASS)
    if "preemptibility" not in given:
        preemptible = read("preemptibility", settings.PREEMPTIBLE)
        if preemptible is not None:
            spec["preemptibility"] = "Preemptible" if preemptible else "NonPreemptible"
    spec["expectedRuntimeSeconds"] = read("expectedRuntimeSeconds", settings.RUNTIME)
    if "topology" not in given:
        topology = {
            "name": read("topology", settings.TOPOLOGY),
            "required": read("topology", settings.TOPOLOGY_REQUIRED),
            "preferred": read("topology", settings.TOPOLOGY_PREFERRED),
        }
        if topology["required"] or topology["preferred"]:
            spec["topology"] = topology
    return notes.step(spec)


def _links(gang: MarkedGang) -> Iterable[Link]:
    """Yield the pods, the oldest first, and then the object: the nearest to the pod wins."""
    for pod in sorted(gang.pods, key=lambda pod: (pod.created, pod.name, pod.uid)):
        yield link_of_pod(pod)
    if gang.body is not None:
        yield link_of(gang.body)


def _owner(gang: MarkedGang) -> Reference:
    """Return what our PodGroup is collected with.

    The object that the mark names, else the controller that all pods share, else the oldest of
    the pods that are still there.
    """
    if gang.body is not None:
        return reference_of(gang.body)
    controllers = {pod.controller for pod in gang.pods}
    if len(controllers) == 1:
        (controller,) = controllers
        if controller is not None:
            return controller
    living = [p for p in gang.pods if not p.is_deleted and p.phase not in ENDED_POD_PHASES]
    return _oldest(living or gang.pods).reference


def _oldest(pods: Sequence[PodFacts]) -> PodFacts:
    return min(pods, key=lambda pod: (pod.created, pod.name, pod.uid))


def _lost(body: Body, loss: Loss) -> Problem:
    message = f"{loss.field}: {loss.value!r} is ignored: {loss.reason}"
    return Problem(reference_of(body), ProblemReason.INVALID_VALUE, message)
