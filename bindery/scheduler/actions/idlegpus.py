"""idlegpus: evicts gangs whose GPUs have been idle for longer than their queue allows.

Through the Eviction API, as at the end of a run time (`runtimelimit`). Replacements of the pods are
planned again, behind the gangs that wait before them: what hung may work after a new start.
"""

from collections.abc import Iterator

from bindery.api.times import timestamp
from bindery.scheduler.actions.evicting import end
from bindery.scheduler.planning.rounds import Turn
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.statement import Commit


class IdleGpuLimit:
    """Evicts the pods of gangs at `idleTimeoutSeconds` of their queue."""

    name = "idlegpus"
    tries_jobs = False
    fills = False

    def execute(self, session: Session, turn: Turn) -> Iterator[Commit]:  # noqa: ARG002
        """Yield the evictions of each gang that has reached the limit."""
        for key, idleness in sorted(session.state.idle.items()):
            job = session.state.jobs.get(key)
            if job is None or session.now - idleness.since < idleness.timeout_s:
                continue
            commit = None
            with session.guarded(job):
                reason = f"no pod has used its GPUs since {timestamp(idleness.since)}"
                commit = end(session, job, reason)
            if commit is not None:
                yield commit
