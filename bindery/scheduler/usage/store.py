"""The ConfigMap that holds the record of past usage.

Used by `recordkeeper.py`; `keeping.py` makes it. Writes are optimistic: one that is based on an
older version than the server's is a conflict, and the caller reads again.
"""

from bindery.kube.client import Client
from bindery.kube.errors import NotFoundError
from bindery.kube.resources import CONFIG_MAPS

KEY = "usage.json"


class RecordStore:
    """One ConfigMap. It remembers the version that it has last seen."""

    def __init__(self, client: Client, name: str, namespace: str) -> None:
        self._client = client
        self.name = name
        self.namespace = namespace
        self._version: str | None = None
        """None: it did not exist."""

    async def load(self) -> str:
        """Return its text; "" where nothing has been written yet.

        Raises:
            KubeError: it cannot be read.
        """
        try:
            found = await self._client.get(CONFIG_MAPS, self.name, self.namespace)
        except NotFoundError:
            self._version = None
            return ""
        self._version = found.metadata.resource_version
        return (found.data or {}).get(KEY, "")

    async def save(self, text: str) -> None:
        """Write `text` over the version that was last seen; make the ConfigMap if it was missing.

        Raises:
            ConflictError, AlreadyExistsError, NotFoundError: somebody was faster; read it again.
            KubeError: it cannot be written.
        """
        if self._version is None:
            body = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": self.name, "namespace": self.namespace},
                "data": {KEY: text},
            }
            written = await self._client.create(CONFIG_MAPS, body, self.namespace)
        else:
            patch = {"metadata": {"resourceVersion": self._version}, "data": {KEY: text}}
            written = await self._client.patch(
                CONFIG_MAPS, self.name, patch, namespace=self.namespace
            )
        self._version = written.metadata.resource_version
