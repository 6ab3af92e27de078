"""Makes bindings of a pod void that may be under way (decision 070).

A binding names the version of its pod, so after a write to the pod all earlier ones are refused.
"""

from typing import TypeVar

from bindery.api.names import VOID_BINDINGS_ANNOTATION
from bindery.api.times import timestamp_micro
from bindery.kube.client import Client
from bindery.kube.errors import ConflictError, InvalidError
from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import KubeObject

T = TypeVar("T", bound=KubeObject)


async def void_bindings(
    client: Client,
    pods: Resource[T],
    namespace: str,
    name: str,
    uid: str,
    *,
    subresource: str = "",
) -> T:
    """Refuse all bindings of the pod that were sent before; return the pod.

    It is bound if one of them came first.

    Raises:
        NotFoundError: there is no pod of the name.
        ConflictError: the pod of the name has another UID.
        KubeError: the API server refuses the write, or is not reached.
    """
    annotations = {VOID_BINDINGS_ANNOTATION: timestamp_micro(client.environment.now_s())}
    patch = {"metadata": {"uid": uid, "annotations": annotations}}
    try:
        return await client.patch(pods, name, patch, namespace=namespace, subresource=subresource)
    except InvalidError as error:
        # For an immutable UID of another pod, the answer is 422 instead of a conflict.
        if (await client.get(pods, name, namespace)).metadata.uid == uid:
            raise
        raise ConflictError(error.status, error.reason, error.message) from error
