"""The predicted outcome of submitting manifests now: the answer of `bindery whatif`.

`bindery.scenario.manifests` makes objects from the manifests, and `bindery.scheduler.insight` plans
them in memory. The cluster is not changed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from bindery.answers.amounts import listed
from bindery.answers.errors import BadInputError
from bindery.answers.grouperrows import GrouperRows
from bindery.answers.source import Source
from bindery.answers.wire import to_wire
from bindery.api.names import NODE_POOL_LABEL
from bindery.api.yamlfile import Document
from bindery.grouper.table.loading import table_of
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.watched import Namespace, Pod
from bindery.scenario.manifests import Grouping, Submission, Surroundings, read_documents
from bindery.scheduler.insight.rehearsal import RehearsalOutcome, rehearse
from bindery.scheduler.world import World


@dataclass(frozen=True)
class Submitted:
    """The manifests to submit."""

    name: str
    """Name of the files, for errors."""
    documents: Sequence[Document]
    namespace: str
    """Namespace of objects that name none."""
    tables: Sequence[Document] = ()
    """Rows for the grouper in addition to rows in the documents."""


@dataclass(frozen=True)
class RehearsalAnswer:
    """The predicted outcome, and its omissions."""

    source: Source
    outcome: RehearsalOutcome
    submission: Submission
    left_out: Sequence[tuple[Pod, str]]
    """The pods of other schedulers, each with the reason."""

    def to_wire(self) -> object:
        """Return the answer for programs."""
        return self.source.described({"runs": self.outcome.runs, **to_wire(self.outcome)})

    @cached_property
    def notes(self) -> list[str]:
        """Return notes about omissions, and about problems of the workloads."""
        passed_over = self.submission.passed_over.items()
        notes = [f"{name} is ignored: {why}" for name, why in passed_over]
        reasons: dict[str, str] = {}
        for pod, why in self.left_out:
            reasons.setdefault(_maker(pod), why)
        notes += [f"{maker} is left out: {why}" for maker, why in reasons.items()]
        return notes + [f"warning: {warning}" for warning in self.submission.warnings]


def submission_of(source: Source, submitted: Submitted, rows: GrouperRows) -> Submission:
    """Return the objects of `submitted`; objects of kind GrouperTable provide rows for the others.

    Raises:
        FileError: a document cannot be used.
    """
    tables = [document for document in submitted.documents if _is_table(document)]
    others = [document for document in submitted.documents if not _is_table(document)]
    tables += submitted.tables
    configuration = source.configuration
    table, problem = table_of(rows.documents, tables), rows.problem
    is_grouped = rows.is_there or configuration.grouper.wait_for_groups
    if not rows.is_there:
        result = "the answer assumes one" if is_grouped else "pods without a PodGroup are alone"
        problem = f"no grouper has run in this cluster: {result}"
    grouping = Grouping(table if is_grouped else None, configuration.scheduler_name)
    around = Surroundings(source.snapshot, submitted.namespace, source.now, grouping)
    submission = read_documents(others, around)
    submission.warnings += [problem] if problem and not tables else []
    return submission


def pool_of(source: Source, submission: Submission) -> str | None:
    """Return the node pool of all pods for Bindery; None if there are several or none."""
    scheduler = source.configuration.scheduler_name
    pools = {_pool(pod) for pod in submission.pods() if pod.spec.scheduler_name == scheduler}
    return pools.pop() if len(pools) == 1 else None


def rehearsed(
    source: Source,
    submission: Submission,
    name: str,
    free_memory: Callable[[], object] = lambda: None,
) -> RehearsalAnswer:
    """Return the predicted outcome of `submission`; `name`: the name of its files.

    Two clusters are filled in memory, one after the other; `free_memory` is called before each.

    Raises:
        BadInputError: it contains nothing for this scheduler.
    """
    left_out = _left_out(source, submission)
    foreign = {pod.metadata.uid for pod, _ in left_out}
    submission.objects = [i for i in submission.objects if i.metadata.uid not in foreign]
    arrivals = [each for each in submission.arrivals if each.pod.metadata.uid not in foreign]
    _demand_something(submission, name, [why for _, why in left_out])
    later = source.later(submission.takes_s)

    def make_world() -> World:
        free_memory()
        return later.world()

    outcome = rehearse(make_world, submission.objects, arrivals, submission.workloads)
    return RehearsalAnswer(source, outcome, submission, left_out)


def demand_namespaces(source: Source, submission: Submission, name: str) -> None:
    """Refuse files with objects in a namespace that exists neither in the cluster nor in the files.

    Raises:
        BadInputError: a namespace does not exist.
    """
    files = [item for item in submission.objects if isinstance(item, Namespace)]
    known = {each.metadata.name for each in (*source.snapshot.namespaces, *files)}
    pods = [each.pod for each in submission.arrivals]
    used = {item.metadata.namespace for item in (*submission.objects, *pods)} - {""}
    missing = sorted(used - known)
    if missing:
        subject = f"namespace {missing[0]} does"
        if len(missing) > 1:
            subject = f"namespaces {listed(missing)} do"
        problem = f"{subject} not exist: create it, or name another with -n"
        raise BadInputError(f"{name}: {problem}")


def _is_table(document: Document) -> bool:
    data = document.data
    return isinstance(data, dict) and data.get("kind") == "GrouperTable"


def _left_out(source: Source, submission: Submission) -> list[tuple[Pod, str]]:
    """Return the pods of other schedulers, each with the reason.

    Pods with a node are not included, because they take room.
    """
    found, asked = [], source.configuration
    for pod in submission.pods():
        scheduler, pool = pod.spec.scheduler_name or "default-scheduler", _pool(pod)
        if pod.spec.node_name:
            continue
        if scheduler != asked.scheduler_name:
            text = f"is planned by {scheduler}; write schedulerName: {asked.scheduler_name}"
        elif pool != asked.node_pool:
            text = f"belongs to node pool {pool!r}; the plan is for node pool {asked.node_pool!r}"
        else:
            continue
        found.append((pod, f"pod {pod.metadata.name} {text}"))
    return found


def _demand_something(submission: Submission, name: str, left_out: Sequence[str]) -> None:
    """Refuse files without anything to schedule.

    Raises:
        BadInputError: they contain neither pods to plan nor objects that influence the plans of
            other pods.
    """
    if not all(isinstance(item, PodGroup) for item in submission.objects):
        return
    if left_out:
        problem = left_out[0]
    elif submission.objects:
        problem = "it has PodGroups but no pods that name them"
    else:
        reasons = [f"{name}: {why}" for name, why in submission.passed_over.items()]
        problem = f"nothing in it is scheduled ({listed(reasons)})"
    raise BadInputError(f"{name}: {problem}")


def _pool(pod: Pod) -> str:
    return pod.metadata.labels.get(NODE_POOL_LABEL, "")


def _maker(pod: Pod) -> str:
    """Return the controller of `pod`, as in `Job/train`, or else the pod itself."""
    owners = [owner for owner in pod.metadata.owner_references if owner.controller]
    kind, name = (owners[0].kind, owners[0].name) if owners else ("Pod", pod.metadata.name)
    return f"{kind}/{name}"
