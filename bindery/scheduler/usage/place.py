"""Where the record of past usage is: the ConfigMap of a node pool, and the key in it."""

from typing import Final

from bindery.api.configuration import SchedulerConfiguration

RECORD_NAME: Final = "bindery-usage"
KEY: Final = "usage.json"


def record_name(configuration: SchedulerConfiguration) -> str:
    """Return the name of the ConfigMap with the record of the configured node pool."""
    pool = configuration.node_pool
    return f"{RECORD_NAME}-{pool}" if pool else RECORD_NAME
