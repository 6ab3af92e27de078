"""The words for preemptible and non-preemptible pods and PodGroups."""

PREEMPTIBLE, NON_PREEMPTIBLE = "Preemptible", "NonPreemptible"


def word(is_preemptible: bool) -> str:
    """Return the word in PodGroups and in records on pods."""
    return PREEMPTIBLE if is_preemptible else NON_PREEMPTIBLE


def read(text: str) -> bool | None:
    """Return whether `text`, one of these words, means preemptible; None for other texts."""
    return {PREEMPTIBLE: True, NON_PREEMPTIBLE: False}.get(text)


def read_annotation(text: str) -> bool | None:
    """Return whether `text`, an annotation of a pod, means preemptible; None for other texts."""
    return {"true": True, "false": False}.get(text.lower())
