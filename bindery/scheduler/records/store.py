"""A ConfigMap with one record.

Used by `keeper.py`. Writes are optimistic: a write based on an older version is a conflict, and the
caller reads again.
"""

from bindery.kube.client import Client
from bindery.kube.errors import NotFoundError
from bindery.kube.objects.resources import CONFIG_MAPS


class RecordStore:
    """One ConfigMap, with the resource version of the last read or write.

    `key`: of the data, under which the record is.
    """

    def __init__(self, client: Client, name: str, namespace: str, key: str) -> None:
        self._client = client
        self.name = name
        self.namespace = namespace
        self._key = key
        self._version: str | None = None
        """None if the ConfigMap did not exist."""

    async def load(self) -> str:
        """Return the text of the record, "" if there is none; raises KubeError."""
        try:
            found = await self._client.get(CONFIG_MAPS, self.name, self.namespace)
        except NotFoundError:
            self._version = None
            return ""
        self._version = found.metadata.resource_version
        return (found.data or {}).get(self._key, "")

    async def save(self, text: str) -> None:
        """Write `text` over the last known version; create the ConfigMap if it did not exist.

        Raises:
            ConflictError, AlreadyExistsError, NotFoundError: another client wrote it; read again.
            KubeError: the ConfigMap cannot be written.
        """
        if self._version is None:
            body = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": self.name, "namespace": self.namespace},
                "data": {self._key: text},
            }
            written = await self._client.create(CONFIG_MAPS, body, self.namespace)
        else:
            patch = {"metadata": {"resourceVersion": self._version}, "data": {self._key: text}}
            written = await self._client.patch(
                CONFIG_MAPS, self.name, patch, namespace=self.namespace
            )
        self._version = written.metadata.resource_version
