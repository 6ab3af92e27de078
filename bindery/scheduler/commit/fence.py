"""Announces a new leader to the binder, before that leader looks at the cluster.

Called by `process` at the beginning of each term. A request that the previous leader has sent may
reach the API server late. If that is before the new leader lists the requests, the leader knows it.
If it is later, then the announcement comes before it in the binder's watch, and the binder refuses
it, as its fencing token is older. So no request can take room that the new leader does not count.
"""

import asyncio

import structlog

from bindery.api.names import API_VERSION, FENCE_LABEL, NODE_POOL_LABEL
from bindery.kube.client import Client
from bindery.kube.errors import AlreadyExistsError, KubeError
from bindery.kube.http.outages import log_failure
from bindery.kube.objects.bindrequests import BindRequestSpec
from bindery.kube.objects.declaring import to_wire
from bindery.kube.objects.resources import BIND_REQUESTS

_AGAIN_S = 0.5

_log = structlog.get_logger()


async def announce(client: Client, lease: str, namespace: str, pool: str, token: int) -> None:
    """Create the announcement of `token`; return once it exists.

    `lease`: the name of the Lease, after which the announcement is named. `token`: the fencing
    token of the term; 0 without an election, when none is needed.
    """
    if not token:
        return
    labels = {FENCE_LABEL: "true"} | ({NODE_POOL_LABEL: pool} if pool else {})
    name = f"{lease}-term-{token}"
    body = {
        "apiVersion": API_VERSION,
        "kind": "BindRequest",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": to_wire(BindRequestSpec(fencing_token=token)),
    }
    while True:
        try:
            await client.create(BIND_REQUESTS, body, namespace)
        except AlreadyExistsError:  # an earlier attempt took effect
            return
        except KubeError as error:
            log_failure(_log, "term not announced", error, request=name)
            await asyncio.sleep(_AGAIN_S)
        else:
            return
