"""The user of a job, for fairness between the users of a queue."""

from collections.abc import Iterable, Mapping


def user_of(label: str, of_group: Mapping[str, str], of_pods: Iterable[Mapping[str, str]]) -> str:
    """Return the user of a job: the value of `label` of its PodGroup, else of its pods.

    If its pods differ, the first value in alphabetical order counts. "" if none has the label.
    `of_group`, `of_pods`: the labels of the PodGroup and of each pod.
    """
    values = (labels.get(label) for labels in of_pods)
    return of_group.get(label) or min((value for value in values if value), default="")
