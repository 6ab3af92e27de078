"""Workloads of manifests as the pods that their controllers create, in the PodGroups that they get.

The grouper's own table decides: `bindery.grouper.controllers` makes the pods, and the plan of
`bindery.grouper.table` the PodGroups. What the webhook would do to the pods comes before. Used by
`submission`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bindery.api.names import SCHEDULER_NAME
from bindery.api.yamlfile import Document
from bindery.binder.webhook.access import Access, PodAccess
from bindery.binder.webhook.applicants import is_to_adopt, mistakes_of_pod, owners
from bindery.binder.webhook.directory import Directory
from bindery.grouper.controllers import Expansion, expand
from bindery.grouper.marks import contracts
from bindery.grouper.marks.contracts import Contract, MarkedGang
from bindery.grouper.table import Group, GroupPlan, Surroundings, Table, load, plan, pod_facts
from bindery.grouper.table.facts import PodFacts, reference_of
from bindery.scheduler.model.jobs import JobKey

_UNKNOWN: Final = "Bindery does not know which pods it creates"
_NO_TEMPLATE: Final = "its row has no pod template: add its pods"
_NO_SPEC: Final = "it has no spec: add its containers"
_NEVER_ADOPTED: Final = frozenset({"kube-system", "kai-resource-reservation"})
"""Namespaces that the webhook is not asked about."""

Body = dict[str, Any]


@dataclass(frozen=True)
class Grouping:
    """The rules by which workloads become gangs."""

    table: Table | None = field(default_factory=load)
    """The rows of the grouper; None if no grouper runs."""
    scheduler_name: str = SCHEDULER_NAME


@dataclass(frozen=True)
class Given:
    """A pod or a workload of a manifest."""

    document: Document
    body: Body
    """With complete metadata."""

    @property
    def title(self) -> str:
        """Kind and name."""
        return f"{self.body['kind']}/{self.body['metadata']['name']}"


@dataclass
class Grouped:
    """What becomes of workloads and pods."""

    pods: list[Given] = field(default_factory=list)
    claims: list[Given] = field(default_factory=list)
    """The volume claims that StatefulSets make for their pods."""
    groups: list[Given] = field(default_factory=list)
    """PodGroups, each with the document of its workload."""
    workloads: dict[JobKey, str] = field(default_factory=dict)
    """The PodGroups -> `Kind/name` of the workload in the manifest."""
    passed_over: dict[str, str] = field(default_factory=dict)
    """`kind/name` -> why."""
    warnings: list[str] = field(default_factory=list)


def group(given: Sequence[Given], grouping: Grouping, directory: Directory) -> Grouped:
    """Return the pods and PodGroups of `given`; `directory`: what is in the cluster around them.

    Raises:
        FileError: a value of a workload cannot be used.
    """
    table = load() if grouping.table is None else grouping.table
    by_uid = {each.body["metadata"]["uid"]: each for each in given}
    found = expand([each.body for each in given], table)
    for uid, why in found.refused.items():
        raise by_uid[uid].document.error((), f"{by_uid[uid].title}: {why}")
    grouped = Grouped()
    left_out = dict.fromkeys(found.others, _UNKNOWN) | found.unknown
    left_out = dict(_without_template(found)) | left_out
    grouped.passed_over = {by_uid[uid].title: why for uid, why in left_out.items()}
    for pod in found.pods:
        root = found.root(pod["metadata"]["uid"])
        if root not in left_out:
            body = _adopted(pod, grouping.scheduler_name, directory)
            at = Given(by_uid[root].document, body)
            at = Given(at.document, _with_claims(found, at, grouped.claims))
            grouped.pods.append(at)
    grouped.warnings += _refusals(given, grouped, grouping, directory)
    if grouping.table is not None:
        _add_groups(grouped, found, by_uid, _Rules(table, grouping, directory))
    return grouped


@dataclass(frozen=True)
class _Rules:
    """The rows of the grouper, and what is in the cluster."""

    table: Table
    grouping: Grouping
    directory: Directory

    def plan(self, owners: Mapping[str, Body], pods: Sequence[Body], namespace: str) -> GroupPlan:
        """Return the plan for `pods`, all in `namespace`."""
        surroundings = Surroundings(
            namespace_labels=self.directory.labels(namespace),
            priority_classes=self.directory.priority_classes(),
        )
        facts = [pod_facts(pod) for pod in pods]
        marked = list(_marked(facts, owners.values(), namespace))
        apart = {pod.uid for gang in marked for pod in gang.pods}
        rest = [pod for pod in facts if pod.uid not in apart]
        plans = [plan(owners, rest, self.table, surroundings), *map(contracts.plan, marked)]
        return GroupPlan(
            tuple(group for each in plans for group in each.groups),
            tuple(problem for each in plans for problem in each.problems),
            tuple(wanted for each in plans for wanted in each.wanted),
        )


def _marked(
    pods: Sequence[PodFacts], objects: Iterable[Body], namespace: str
) -> Iterator[MarkedGang]:
    """Yield the gangs of the pods that other schedulers' tools have marked."""
    found: dict[tuple[str, str], tuple[Contract, list[PodFacts]]] = {}
    for pod in pods:
        if pod.scheduling_group or contracts.is_left_to_owners(pod):
            continue
        named = contracts.contract_of(pod)
        if named is not None:
            contract, name = named
            found.setdefault((contract.name, name), (contract, []))[1].append(pod)
    by_name = {
        (reference.group, reference.kind, reference.name): item
        for item in objects
        if (reference := reference_of(item)).namespace == namespace
    }
    for (_, name), (contract, members) in found.items():
        kind = contract.kind
        body = None if kind is None else by_name.get((kind.group, kind.kind, name))
        yield MarkedGang(contract, name, namespace, members, body)


def _without_template(found: Expansion) -> Iterator[tuple[str, str]]:
    for pod in found.pods:
        if pod.get("spec") is None:
            uid = pod["metadata"]["uid"]
            root = found.root(uid)
            yield root, _NO_SPEC if root == uid else _NO_TEMPLATE


def _adopted(pod: Body, scheduler_name: str, directory: Directory) -> Body:
    """Return `pod` as the webhook leaves it in its namespace."""
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    namespace = metadata.get("namespace", "")
    if namespace in _NEVER_ADOPTED or not directory.is_enabled(namespace):
        return pod
    if not is_to_adopt(metadata, spec):
        return pod
    return {**pod, "spec": {**spec, "schedulerName": scheduler_name}}


def _with_claims(found: Expansion, pod: Given, claims: list[Given]) -> Body:
    """Return the body of `pod` with the volumes of its StatefulSet; add their claims to `claims`.

    Raises:
        FileError: a template of a claim has no name.
    """
    body, metadata = pod.body, pod.body["metadata"]
    controllers = [each["uid"] for each in owners(metadata) if each.get("controller")]
    owner = found.owners.get(controllers[0], {}) if controllers else {}
    if owner.get("kind") != "StatefulSet":
        return body
    made: dict[str, Body] = {}
    for index, template in enumerate(owner["spec"].get("volumeClaimTemplates") or ()):
        name = (template.get("metadata") or {}).get("name")
        if not name:
            location = ("spec", "volumeClaimTemplates", index, "metadata", "name")
            raise pod.document.error(location, "this key is required")
        claim = f"{name}-{metadata['name']}"
        identity = {
            "name": claim,
            "namespace": metadata["namespace"],
            "uid": f"{metadata['uid']}-{name}",
            "creationTimestamp": metadata.get("creationTimestamp"),
        }
        claims.append(Given(pod.document, {"metadata": identity, "spec": template.get("spec")}))
        made[name] = {"name": name, "persistentVolumeClaim": {"claimName": claim}}
    kept = [each for each in body["spec"].get("volumes") or () if each.get("name") not in made]
    return {**body, "spec": {**body["spec"], "volumes": [*kept, *made.values()]}}


def _refusals(
    given: Sequence[Given], grouped: Grouped, grouping: Grouping, directory: Directory
) -> Iterator[str]:
    """Yield what the webhook would refuse, each with the reason, once for each workload."""
    access, pods = Access(directory, grouping.scheduler_name), PodAccess(directory)
    for each in given:
        namespace = each.body["metadata"]["namespace"]
        problems = []
        if each.body["kind"] != "Pod":
            problems = list(dict.fromkeys(access.problems_in(each.body, namespace)))
        yield from (_refused(each.title, problem) for problem in problems)
    seen: set[tuple[str, str]] = set()
    for each in grouped.pods:
        metadata, spec = each.body["metadata"], each.body["spec"]
        if spec.get("schedulerName") != grouping.scheduler_name:
            continue
        problems = mistakes_of_pod(metadata)
        above = next(iter(owners(metadata)), {"kind": "Pod", "name": metadata["name"]})
        for problem in (*problems, *pods.validate(each.body)):
            key = (f"the pods of {above['kind']}/{above['name']}", problem)
            if key not in seen:
                seen.add(key)
                yield _refused(*key)


def _refused(what: str, problem: str) -> str:
    return f"the webhook, where it runs, refuses {what}: {problem}"


def _add_groups(
    grouped: Grouped, found: Expansion, by_uid: Mapping[str, Given], rules: _Rules
) -> None:
    """Add the PodGroups that the grouper would write."""
    namespaces: dict[str, list[Body]] = {}
    for each in grouped.pods:
        if each.body["spec"].get("schedulerName") == rules.grouping.scheduler_name:
            namespaces.setdefault(each.body["metadata"]["namespace"], []).append(each.body)
    for namespace, pods in sorted(namespaces.items()):
        planned = rules.plan(found.owners, pods, namespace)
        names: set[str] = set()
        for made in planned.groups:
            given = by_uid.get(found.root(made.owner.uid)) or by_uid[found.root(made.pods[0])]
            body = made.to_object()
            body["metadata"] |= _identity(made, given, names)
            grouped.groups.append(Given(given.document, body))
            key = JobKey(namespace, body["metadata"]["name"], True)
            grouped.workloads[key] = given.title
        grouped.warnings += [f"{each.object}: {each.message}" for each in planned.problems]
        named = dict.fromkeys(filter(None, (pod_facts(pod).scheduling_group for pod in pods)))
        grouped.warnings += [
            f"PodGroup {name} of scheduling.k8s.io is not read: its pods are judged without it"
            for name in named
        ]
        missing = [f"{each.kind}/{each.name}" for each in planned.wanted]
        grouped.warnings += [f"{each} is not in the files: add it" for each in missing]


def _identity(made: Group, given: Given, names: set[str]) -> Body:
    """Return name, UID and time of a PodGroup. Its real name ends in a UID that does not exist yet.

    `names`: the names of the other PodGroups of the namespace; the name is added.
    """
    plain = made.name.replace(f"-{made.owner.uid[:8]}", "", 1)
    name = made.name if plain in names else plain
    names.add(name)
    created = given.body["metadata"].get("creationTimestamp")
    return {"name": name, "uid": f"{made.owner.uid}/{made.name}", "creationTimestamp": created}
