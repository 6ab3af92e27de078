"""Writes the Statements of BindRequests as text. Pure.

Used by `listings`, `subjects` and `bindery.cli.text.state`. A snapshot has one `CommittedStatement`
for each Statement; the Statements of one request have the same metadata.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from bindery.api.states import Phase
from bindery.kube.objects.bindrequests import CommittedStatement
from bindery.kube.objects.snapshot import ClusterSnapshot
from bindery.kube.objects.watched import Pod

_SHOWN_NAMES: Final = 3
_WITHDRAWN: Final = "withdrawn by the scheduler"


def gang_of(statement: CommittedStatement) -> str:
    """Return the PodGroup of a Statement, or its pods without one: `pod/a +3`."""
    group = statement.spec.pod_group
    if group is not None:
        return group.name
    return few(f"pod/{pod.pod_name}" for pod in statement.spec.pods)


def few(names: Iterable[str]) -> str:
    """Return the first of `names`, and the number of the others: `a,b,c +3`."""
    found = list(names)
    more = f" +{len(found) - _SHOWN_NAMES}" if len(found) > _SHOWN_NAMES else ""
    return ",".join(found[:_SHOWN_NAMES]) + more


def phase_of(statement: CommittedStatement) -> str:
    """Return the phase of a Statement, also if the binder has written none yet."""
    return statement.status.phase or Phase.PENDING.value


def reason_of(statement: CommittedStatement) -> str:
    """Return the reason why a Statement waits or has failed; empty if unknown."""
    if statement.is_withdrawn and not statement.is_final:
        return _WITHDRAWN
    return ": ".join(text for text in (statement.status.reason, statement.status.message) if text)


def request_lines(statements: Sequence[CommittedStatement]) -> Iterator[str]:
    """Yield lines about the state of a BindRequest and of each of its Statements."""
    meta = statements[0].metadata
    name = f"BindRequest {meta.namespace}/{meta.name}"
    if len(statements) == 1:
        yield f"{name} is {_outcome(statements[0])}"
        return
    bound = sum(len(each.status.bound_pods) for each in statements)
    pods = sum(len(each.spec.pods) for each in statements)
    yield f"{name} carries {len(statements)} Statements: {bound} of {pods} pods are bound."
    yield from (f"  {gang_of(each)} is {_outcome(each)}" for each in statements)


def lines_of_gang(
    snapshot: ClusterSnapshot, statements: Sequence[CommittedStatement]
) -> Iterator[str]:
    """Yield a line for each of a gang's `statements` that has not succeeded."""
    sizes = Counter(_name(each) for each in snapshot.statements)
    for each in statements:
        if each.status.phase == Phase.SUCCEEDED:
            continue
        others = sizes[_name(each)] - 1
        plural = "" if others == 1 else "s"
        shared = f" (shared with {others} other Statement{plural})" if others else ""
        yield f"Its BindRequest {each.metadata.name}{shared} is {_outcome(each)}"


def statements_of(snapshot: ClusterSnapshot, pods: Sequence[Pod]) -> list[CommittedStatement]:
    """Return the Statements with one of `pods`, by the names of their requests."""
    uids = {pod.metadata.uid for pod in pods}
    found = [r for r in snapshot.statements if any(pod.pod_uid in uids for pod in r.spec.pods)]
    return sorted(found, key=lambda each: (*_name(each), each.key))


def _outcome(statement: CommittedStatement) -> str:
    """Return `Pending: 0 of 8 pods are bound.` and the reason, if any."""
    bound = f"{len(statement.status.bound_pods)} of {len(statement.spec.pods)} pods are bound"
    line, reason = f"{phase_of(statement)}: {bound}.", reason_of(statement)
    return f"{line} {reason.removesuffix('.')}." if reason else line


def _name(statement: CommittedStatement) -> tuple[str, str]:
    return statement.metadata.namespace, statement.metadata.name
