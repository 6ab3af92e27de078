"""The words by which pods and PodGroups may be evicted for others, or not."""

PREEMPTIBLE, NON_PREEMPTIBLE = "Preemptible", "NonPreemptible"


def word(is_preemptible: bool) -> str:
    """Return the word in PodGroups and in records on pods."""
    return PREEMPTIBLE if is_preemptible else NON_PREEMPTIBLE


def read(text: str) -> bool | None:
    """Return whether `text`, one of these words, means preemptible; None for other texts."""
    return {PREEMPTIBLE: True, NON_PREEMPTIBLE: False}.get(text)


def said(text: str) -> bool | None:
    """Return whether `text`, the annotation of a pod, asks to be preemptible; None for others."""
    return {"true": True, "false": False}.get(text.lower())
