"""Releases BindRequests that are being deleted (decision 073)."""

from bindery.api.names import ROLL_BACK_FINALIZER
from bindery.kube.client import Client
from bindery.kube.errors import NotFoundError
from bindery.kube.objects.resources import BIND_REQUESTS, metadata_only
from bindery.kube.objects.watched import KubeObject, Meta


async def release(client: Client, request: Meta) -> None:
    """Remove the finalizer from a request that is being deleted, so that it goes.

    Does nothing if the request is gone, also if another one has its name.
    """

    def without_finalizer(found: KubeObject) -> dict[str, object] | None:
        finalizers = found.metadata.finalizers
        if found.metadata.uid != request.uid or ROLL_BACK_FINALIZER not in finalizers:
            return None
        kept = [each for each in finalizers if each != ROLL_BACK_FINALIZER]
        return {"metadata": {"finalizers": kept}}

    resource = metadata_only(BIND_REQUESTS)
    try:
        await client.update(resource, request.name, request.namespace, without_finalizer)
    except NotFoundError:
        return
