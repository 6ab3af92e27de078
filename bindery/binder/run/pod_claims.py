"""Ownership of pods by Runs: each pod has at most one Run at a time.

Owned by `statements.manager`. `run_start` claims the pods of a Run before the first attempt;
`statements.manager` releases them after the Run has ended.
"""

from bindery.binder.run.run import Run


class PodClaims:
    """The claims of one manager's Runs."""

    def __init__(self) -> None:
        self._holders: dict[str, Run] = {}
        """Pod UID -> the Run that holds it."""

    def others(self, run: Run) -> list[Run]:
        """Return the other Runs that hold pods of `run`."""
        found = (self._holders.get(uid) for uid in run.pod_uids)
        return list({id(each): each for each in found if each not in (None, run)}.values())

    def claim(self, run: Run) -> list[str]:
        """Claim the pods of `run`; return the UIDs of pods that another Run holds."""
        return [uid for uid in run.pod_uids if self._holders.setdefault(uid, run) is not run]

    def release(self, run: Run) -> None:
        """Release the pods that `run` holds."""
        for uid in run.pod_uids:
            if self._holders.get(uid) is run:
                del self._holders[uid]
