"""Writes a NodeResourceTopology, which may not be there yet, or not be served at all."""

from bindery.kube.client import Client
from bindery.kube.errors import AlreadyExistsError, NotFoundError
from bindery.kube.objects.nodetopologies import NODE_RESOURCE_TOPOLOGIES
from bindery.nodeagent.topologyreport import Body

_ATTEMPTS = 2
"""Another writer may create or delete the object between a patch and a creation."""


async def store(client: Client, name: str, body: Body) -> bool:
    """Write the object `name`; return False if the API server does not serve the kind.

    Raises:
        KubeError: the API server refuses it or is not reached.
    """
    for _ in range(_ATTEMPTS):
        try:
            await client.patch(NODE_RESOURCE_TOPOLOGIES, name, body)
        except NotFoundError:
            pass
        else:
            return True
        try:
            await client.create(NODE_RESOURCE_TOPOLOGIES, body)
        except AlreadyExistsError:
            continue
        except NotFoundError:
            return False
        return True
    return True
