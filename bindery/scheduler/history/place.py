"""Where the history is: the ConfigMap of a node pool, and the key in it."""

from typing import Final

from bindery.api.configuration import SchedulerConfiguration

HISTORY_NAME: Final = "bindery-history"
KEY: Final = "history"


def history_name(configuration: SchedulerConfiguration) -> str:
    """Return the name of the ConfigMap with the history of the configured node pool."""
    pool = configuration.node_pool
    return f"{HISTORY_NAME}-{pool}" if pool else HISTORY_NAME
