"""Mistakes in pods, for events on them."""

from collections.abc import Iterator
from typing import Final

from bindery.api.mistakes import mistaken_keys
from bindery.api.podvalues import wrong_values
from bindery.kube.objects.watched import Meta, Pod
from bindery.scheduler.model.problems import ObjectProblem

_MOST_MISTAKES: Final = 5
"""Maximum number of wrong keys, or values, in the event of a pod."""


def mistakes(pod: Pod, known: Pod | None) -> Iterator[ObjectProblem]:
    """Yield the problems with keys or values of `pod` without effect, unless `known` had them."""
    meta, old = pod.metadata, known.metadata if known is not None else Meta()
    if (meta.annotations, meta.labels) == (old.annotations, old.labels):
        return
    found = mistaken_keys(meta.annotations, meta.labels)
    wrong = [*wrong_values(meta.annotations, meta.labels)]
    if wrong:
        yield ObjectProblem("v1", "Pod", meta, "InvalidValue", "; ".join(wrong[:_MOST_MISTAKES]))
    if found:
        yield ObjectProblem("v1", "Pod", meta, "UnknownKey", "; ".join(found[:_MOST_MISTAKES]))
