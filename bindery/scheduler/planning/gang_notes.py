"""The fields of a gang without effect, for its condition. Pure.

Used by `job_reports` for gangs that wait, by `status/gangs.py` for gangs with their minimum.
"""

from collections.abc import Collection

from bindery.scheduler.model.jobs import Job
from bindery.scheduler.model.shapes import Need, ignored_text


def notes(job: Job, supported: Collection[Need]) -> str:
    """Return which fields of `job` have no effect, and why; "" if all have one.

    `supported`: the needs that plugins support.
    """
    ignored = ignored_text((task.shape for task in job.tasks.values()), supported)
    return "; ".join(text for text in (_queue_text(job), ignored) if text)


def _queue_text(job: Job) -> str:
    if job.queue == job.named_queue or not job.exists:
        return ""
    return (
        f"its bound pods are charged to queue {job.queue}: "
        f"queue {job.named_queue} applies when they have ended"
    )
