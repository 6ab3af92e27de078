"""cooldown: keeps a job away from the nodes of its recent binding failures."""

from collections.abc import Iterator

import numpy as np

from bindery.scheduler.model.jobs import NO_ROW, Job
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.verdicts import NodeFailure, Refusal
from bindery.scheduler.plugins.view import SessionView


class Cooldown:
    """Filters nodes by the recent failures of a job (`failedNodeCooldownSeconds`)."""

    name = "cooldown"

    def invalid(self, session: SessionView, job: Job) -> Refusal | None:
        """Refuse a job for some time after its BindRequest could not be created."""
        why = session.memory.postponed(job)
        return Refusal(JobReason.COMMIT_FAILED, why) if why is not None else None

    def job_node_failures(self, session: SessionView, job: Job) -> Iterator[NodeFailure]:
        """Yield the nodes of the job's recent binding failures."""
        # A remembered node may have been deleted since.
        rows = [
            row
            for name in session.memory.avoided_nodes(job)
            if (row := session.state.nodes.rows.get(name, NO_ROW)) != NO_ROW
        ]
        if rows:
            nodes = np.zeros(len(session.state.nodes.nodes), dtype=np.bool_)
            nodes[rows] = True
            yield NodeFailure("failed to bind it a short while ago", nodes)
