"""Where the history is: the ConfigMap of a node pool, and the key in it."""

from typing import Final

HISTORY_NAME: Final = "bindery-history"
KEY: Final = "history"


def history_name(pool: str) -> str:
    """Return the name of the ConfigMap with the history of the node pool `pool`."""
    return f"{HISTORY_NAME}-{pool}" if pool else HISTORY_NAME
