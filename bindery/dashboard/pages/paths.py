"""The paths of the pages about one object, and which object a path names. Pure."""

from typing import Final
from urllib.parse import quote

from bindery.scheduler.model.jobs import JobKey

ENDINGS: Final = (".json", ".csv", ".html")
"""The endings of a path that choose the form of the answer."""
_POD: Final = "pod:"
"""Before the name of a single pod: no PodGroup can be called so."""


def gang_path(key: JobKey) -> str:
    """Return the path of the page of a gang or a single pod."""
    name = key.name if key.is_group else f"{_POD}{key.name}"
    return f"/gangs/{quote(key.namespace, safe='')}/{_ended(name)}"


def help_path(key: JobKey) -> str:
    """Return the path of the page about what would help a gang."""
    name = key.name if key.is_group else f"{_POD}{key.name}"
    return f"/gangs/{quote(key.namespace, safe='')}/{quote(name, safe='')}/help"


def past_path(key: JobKey) -> str:
    """Return the path of the page with the past of a gang."""
    return help_path(key).removesuffix("help") + "past"


def gang_of_path(namespace: str, name: str) -> JobKey:
    """Return the key of the gang that a path names."""
    if name.startswith(_POD):
        return JobKey(namespace, name.removeprefix(_POD), False)
    return JobKey(namespace, name, True)


def queue_path(name: str) -> str:
    """Return the path of the page of a queue."""
    return f"/queues/{_ended(name)}"


def trend_path(name: str) -> str:
    """Return the path of the page with the trend of a queue."""
    return f"/queues/{quote(name, safe='')}/trend"


def node_path(name: str) -> str:
    """Return the path of the page of a node."""
    return f"/nodes/{_ended(name)}"


def _ended(name: str) -> str:
    """Return `name` for a path; a name with the ending of a form gets one more."""
    return quote(name, safe="") + (".html" if name.endswith(ENDINGS) else "")
