"""What the files of pods show, from the API's objects and from the pods themselves."""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from bindery.api import times
from bindery.kube.errors import KubeError
from bindery.nodeagent.containers import downward
from bindery.nodeagent.containers.downward import PodSurroundings
from bindery.nodeagent.containers.errors import StartError
from bindery.nodeagent.containers.objects import ConfigObject, PodObjects, TokenStatus
from bindery.nodeagent.containers.podspec import RunPod
from bindery.nodeagent.volumes.sources import MountingPod, PodFieldFile, TokenFile
from bindery.nodecore.volumes.populator import VolumeError

_RENEW_PART: Final = 0.8
"""A token is renewed after this part of its life, as in the kubelet."""


@dataclass(frozen=True)
class _Issued:
    status: TokenStatus
    at_s: float

    def is_old(self, now_s: float) -> bool:
        expires_s = times.seconds(self.status.expiration_timestamp)
        if expires_s is None:
            return True
        return now_s > self.at_s + _RENEW_PART * (expires_s - self.at_s)


class ApiPodContent:
    """Implements `PodContent`. `pods`: UID -> pod, kept current by the caller."""

    def __init__(
        self,
        objects: PodObjects,
        pods: Mapping[str, RunPod],
        around: PodSurroundings,
        now_s: Callable[[], float],
    ) -> None:
        self._objects, self._pods = objects, pods
        self._around, self._now_s = around, now_s
        self._tokens: dict[tuple[str, str, int], _Issued] = {}

    async def config_map(self, namespace: str, name: str) -> Mapping[str, bytes] | None:
        """Return the data of a ConfigMap, its binary data too; None if there is none."""
        try:
            found = await self._objects.config_map(namespace, name)
        except KubeError as error:
            raise VolumeError(str(error)) from error
        if found is None:
            return None
        return {key: text.encode() for key, text in (found.data or {}).items()} | _plain(
            found.binary_data
        )

    async def secret(self, namespace: str, name: str) -> Mapping[str, bytes] | None:
        """Return the data of a Secret; None if there is none."""
        try:
            found: ConfigObject | None = await self._objects.secret(namespace, name)
        except KubeError as error:
            raise VolumeError(str(error)) from error
        return None if found is None else _plain(found.data)

    async def token(self, pod: MountingPod, wanted: TokenFile) -> str:
        """Return a token of the pod's account, bound to the pod; it is kept until it is old."""
        key = (pod.uid, wanted.audience, wanted.expiration_seconds)
        known = self._tokens.get(key)
        if known is None or known.is_old(self._now_s()):
            try:
                status = await self._objects.token(self._pod(pod), *key[1:])
            except KubeError as error:
                raise VolumeError(f"failed to fetch token: {error}") from error
            known = self._tokens[key] = _Issued(status, self._now_s())
        return known.status.token

    def value(self, pod: MountingPod, wanted: PodFieldFile) -> str:
        """Return the value of a field or an amount of the pod."""
        of = self._pod(pod)
        try:
            if wanted.resource_field_ref is not None:
                first = of.spec.containers[0]
                return downward.resource_value(of, first, wanted.resource_field_ref, self._around)
            path = wanted.field_ref.field_path if wanted.field_ref is not None else ""
            return downward.field_value(of, path, self._around)
        except StartError as error:
            raise VolumeError(str(error)) from error

    def forget(self, uid: str) -> None:
        """Forget the tokens of a pod."""
        for key in [key for key in self._tokens if key[0] == uid]:
            del self._tokens[key]

    def _pod(self, pod: MountingPod) -> RunPod:
        found = self._pods.get(pod.uid)
        if found is None:
            raise VolumeError(f"pod {pod.metadata.name} is gone")
        return found


def _plain(values: Mapping[str, str] | None) -> dict[str, bytes]:
    return {key: base64.b64decode(text) for key, text in (values or {}).items()}
