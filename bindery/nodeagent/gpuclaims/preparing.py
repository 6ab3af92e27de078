"""Prepares and gives back the claims of the node's pods, when the kubelet asks.

The file of a claim is written before the answer, so a driver that is killed loses nothing: the
kubelet asks again, and gets the same answer. Each claim has its own error.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import structlog

from bindery.kube.client import Client
from bindery.kube.errors import KubeError, NotFoundError
from bindery.kube.objects.claims import RESOURCE_CLAIMS, ConsumerReference, ResourceClaim
from bindery.kube.objects.resources import PODS, metadata_only
from bindery.kube.objects.watched import Pod
from bindery.nodeagent.gpuclaims import cdi, consumers, grants
from bindery.nodeagent.gpuclaims.cdi import ClaimOnNode
from bindery.nodeagent.gpuclaims.grants import GrantedShare, GrantError, NoRoomError
from bindery.nodeagent.gpuclaims.offers import WatchedGpus
from bindery.nodeagent.gpuclaims.specfiles import SpecFiles
from bindery.nodeagent.hamicore import CoreFiles
from bindery.nodeagent.sockets.definitions import dra_pb2 as api
from bindery.nodeagent.sockets.services import Methods

_LOOK_AGAIN_S: Final = 30.0
_ROOM_S: Final = 20.0
"""How long a claim waits for room. The kubelet waits 45 s for the answer, but after an error it
asks again only after 60 to 90 s."""

log = structlog.get_logger(__name__)


class ClaimPreparer:
    """The claims of the node `node`. `core_files`: of HAMi-core, which is looked for once."""

    def __init__(
        self,
        client: Client,
        node: str,
        gpus: WatchedGpus,
        files: SpecFiles,
        core_files: CoreFiles,
    ) -> None:
        self._client, self._node, self._gpus = client, node, gpus
        self._files, self._core_files = files, core_files
        self._core = core_files.found()
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._users: Counter[str] = Counter()
        self._freed = asyncio.Event()

    def methods(self) -> Methods:
        """Return the methods of the service."""
        return {"NodePrepareResources": self.prepare, "NodeUnprepareResources": self.unprepare}

    async def prepare(
        self, request: api.NodePrepareResourcesRequest
    ) -> api.NodePrepareResourcesResponse:
        """Prepare claims: the answer has devices or an error for each."""
        claims = [ClaimOnNode(one.namespace, one.name, one.uid) for one in request.claims]
        answers = await asyncio.gather(*(self._prepare(one) for one in claims))
        return api.NodePrepareResourcesResponse(
            claims={claim.uid: answer for claim, answer in zip(claims, answers, strict=True)}
        )

    async def unprepare(
        self, request: api.NodeUnprepareResourcesRequest
    ) -> api.NodeUnprepareResourcesResponse:
        """Give claims back, unknown ones too: the answer has an error or nothing for each."""
        return api.NodeUnprepareResourcesResponse(
            claims={one.uid: await self._unprepare(one.uid) for one in request.claims}
        )

    async def sweep(self) -> None:
        """Remove the files of claims that are gone, once; returns when all were looked at."""
        self._core_files.remove_unknown_claims(self._files.uids())
        waiting = set(self._files.prepared())
        while waiting:
            for uid, file in self._files.prepared().items():
                if uid in waiting and await self._was_looked_at(file.claim):
                    waiting.discard(uid)
            waiting &= set(self._files.prepared())
            if waiting:
                await asyncio.sleep(_LOOK_AGAIN_S)

    async def _prepare(self, claim: ClaimOnNode) -> api.NodePrepareResourceResponse:
        try:
            async with self._alone(claim.uid):
                given = await self._grants(claim)
                await self._write_with_room(claim, given)
        except (GrantError, KubeError, OSError) as error:
            log.warning("a claim cannot be prepared", namespace=claim.namespace, claim=claim.name,
                        uid=claim.uid, error=str(error))  # fmt: skip
            return api.NodePrepareResourceResponse(error=str(error))
        return api.NodePrepareResourceResponse(devices=_devices(claim.uid, self._node, given))

    async def _grants(self, claim: ClaimOnNode) -> tuple[GrantedShare, ...]:
        found = await self._client.get(RESOURCE_CLAIMS, claim.name, claim.namespace)
        if found.metadata.uid != claim.uid:
            raise GrantError("another claim has this name now")
        given = grants.grants(found, self._node, self._gpus.now)
        await self._check_consumers(found)
        return given

    async def _check_consumers(self, claim: ResourceClaim) -> None:
        """Check the pods that have reserved the claim until now."""
        namespace = claim.metadata.namespace
        requests = {claim.metadata.name: consumers.requests_of(claim)}
        for each in claim.status.reserved_for:
            pod = await self._pod(namespace, each) if each.resource == "pods" else None
            if pod is None:
                continue
            for name in consumers.claims_beside(pod, claim.metadata.name) - requests.keys():
                other = await self._client.get(RESOURCE_CLAIMS, name, namespace)
                requests[name] = consumers.requests_of(other)
            consumers.check(pod, requests)

    async def _pod(self, namespace: str, reference: ConsumerReference) -> Pod | None:
        """Return a pod; None if it is gone."""
        try:
            found = await self._client.get(PODS, reference.name, namespace)
        except NotFoundError:
            return None
        return found if found.metadata.uid == reference.uid else None

    async def _write_with_room(self, claim: ClaimOnNode, given: Sequence[GrantedShare]) -> None:
        """Write the file of a claim, once the claims that held its room are given back.

        Schedulers give room away when a pod is deleted by force, while its containers still end.
        """
        give_up_s = asyncio.get_running_loop().time() + _ROOM_S
        while True:
            freed = self._freed
            try:
                self._write(claim, given)
            except NoRoomError:
                left_s = give_up_s - asyncio.get_running_loop().time()
                if left_s <= 0:
                    raise
                with suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await freed.wait()
            else:
                return

    def _write(self, claim: ClaimOnNode, given: Sequence[GrantedShare]) -> None:
        # Without `await`, so no other claim can take the room in between.
        others = {uid: file.held for uid, file in self._files.prepared().items()}
        others.pop(claim.uid, None)
        grants.check_room(given, others)
        if claim.uid not in self._files.uids():
            for request in {grant.request for grant in given if grant.is_limited}:
                place = self._core.of_request(claim.uid, request)
                self._core_files.prepare(self._core, place)
        if self._files.write(claim.uid, cdi.text(claim, given, self._core)):
            log.info("claim prepared", namespace=claim.namespace, claim=claim.name, uid=claim.uid,
                     gpus=[grant.gpu.uuid for grant in given])  # fmt: skip

    async def _unprepare(self, uid: str) -> api.NodeUnprepareResourceResponse:
        try:
            async with self._alone(uid):
                if self._remove(uid):
                    log.info("claim given back", uid=uid)
        except (GrantError, OSError) as error:
            log.warning("a claim cannot be given back", uid=uid, error=str(error))
            return api.NodeUnprepareResourceResponse(error=str(error))
        return api.NodeUnprepareResourceResponse()

    def _remove(self, uid: str) -> bool:
        was_there = self._files.remove(uid)
        self._core_files.remove_unknown_claims(self._files.uids())
        self._freed.set()
        self._freed = asyncio.Event()
        return was_there

    async def _was_looked_at(self, claim: ClaimOnNode) -> bool:
        """Remove the file of a claim that is gone; return False if that is not known yet."""
        async with self._alone(claim.uid):
            try:
                found = await self._client.get(
                    metadata_only(RESOURCE_CLAIMS), claim.name, claim.namespace
                )
                is_gone = found.metadata.uid != claim.uid
            except NotFoundError:
                is_gone = True
            except KubeError:
                return False
            if is_gone and self._remove(claim.uid):
                log.info("file of a claim that is gone removed", namespace=claim.namespace,
                         claim=claim.name, uid=claim.uid)  # fmt: skip
        return True

    @asynccontextmanager
    async def _alone(self, uid: str) -> AsyncIterator[None]:
        """Enter when nothing else is done with the claim."""
        self._users[uid] += 1
        try:
            async with self._locks[uid]:
                yield
        finally:
            self._users[uid] -= 1
            if not self._users[uid]:
                del self._users[uid], self._locks[uid]


def _devices(uid: str, node: str, given: Iterable[GrantedShare]) -> list[api.Device]:
    """Return the devices for the kubelet, which passes the CDI devices of a request on."""
    found = []
    named: set[str] = set()
    for grant in given:
        # Once for each request: its CDI device has all of its GPUs.
        is_first = grant.request not in named
        named.add(grant.request)
        found.append(
            api.Device(
                request_names=[grant.request],
                pool_name=node,
                device_name=grant.gpu.name,
                cdi_device_ids=[cdi.device_id(uid, grant.request)] if is_first else [],
                share_id=grant.share_id or None,
            )
        )
    return found
