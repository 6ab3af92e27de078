"""The volumes of pods: one interface, and the kinds that need neither a driver nor an attachment.

The paths are the kubelet's: `pods/UID/volumes/PLUGIN/NAME` below its root directory.
"""

import base64
import os
import shutil
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from bindery.api import quantity, times
from bindery.nodeagent.containers import atomicfiles, downward
from bindery.nodeagent.containers.atomicfiles import FileContent
from bindery.nodeagent.containers.downward import PodSurroundings
from bindery.nodeagent.containers.errors import StartError, VolumeError
from bindery.nodeagent.containers.objects import ConfigObject, PodObjects, TokenStatus
from bindery.nodeagent.containers.podspec import (
    DownwardVolume,
    EmptyDir,
    HostPath,
    ObjectVolume,
    ProjectedVolume,
    Projection,
    RunPod,
    RunVolume,
    TokenProjection,
)

_TOKEN_MODE: Final = 0o600
_RENEW_PART: Final = 0.8
"""A token is renewed after this part of its life, as in the kubelet."""
_MEMORY: Final = "Memory"


@dataclass(frozen=True)
class Prepared:
    """A volume that is ready. `read_only`: containers cannot write to it."""

    path: Path
    read_only: bool = False


class NodeVolumes(Protocol):
    """Makes the volumes of pods ready, and takes them down."""

    async def prepare(self, pod: RunPod, around: PodSurroundings) -> Mapping[str, Prepared]:
        """Make all volumes of a pod ready or up to date; return them by name.

        Called again while the pod runs, so that files follow their objects.

        Raises:
            VolumeError: a volume is not ready; the caller tries again.
            KubeError: an object cannot be read.
        """

    async def release(self, uid: str) -> None:
        """Take down the volumes of the pod `uid`, whose containers have ended.

        Raises:
            VolumeError: a volume is busy.
        """


class Mounts(Protocol):
    """File systems in memory."""

    def mount(self, path: Path, size_bytes: int | None) -> None:
        """Mount a file system in memory, if none is there; raises OSError."""

    def unmount(self, path: Path) -> None:
        """Unmount what is mounted at `path`; nothing there is no error. Raises OSError."""


@dataclass
class _Token:
    status: TokenStatus
    issued_s: float


class SimpleVolumes:
    """emptyDir, hostPath, and files from objects, from the pod itself and from tokens."""

    def __init__(
        self,
        root: Path,
        objects: PodObjects,
        mounts: Mounts,
        clock: Callable[[], float],
        token: Callable[[], str],
    ) -> None:
        self._root, self._objects, self._mounts = root, objects, mounts
        self._clock, self._token = clock, token
        self._tokens: dict[tuple[str, str, str], _Token] = {}

    async def prepare(self, pod: RunPod, around: PodSurroundings) -> Mapping[str, Prepared]:
        """See `NodeVolumes`."""
        found = {}
        for volume in pod.spec.volumes or ():
            try:
                found[volume.name] = await self._prepare(pod, volume, around)
            except (OSError, StartError) as error:
                raise VolumeError(f'volume "{volume.name}": {error}') from error
        return found

    async def release(self, uid: str) -> None:
        """See `NodeVolumes`."""
        for key in [key for key in self._tokens if key[0] == uid]:
            del self._tokens[key]
        self._remove(uid)

    def _remove(self, uid: str) -> None:
        directory = self._root / "pods" / uid / "volumes"
        try:
            for path in directory.glob("*/*"):
                self._mounts.unmount(path)
            if directory.exists():
                shutil.rmtree(directory)
        except OSError as error:
            raise VolumeError(f"the volumes of pod {uid} cannot be removed: {error}") from error

    async def _prepare(self, pod: RunPod, volume: RunVolume, around: PodSurroundings) -> Prepared:
        if volume.empty_dir is not None:
            path = self._path(pod, "empty-dir", volume.name)
            self._empty_dir(path, volume.empty_dir, _group(pod))
            return Prepared(path)
        if volume.host_path is not None:
            return Prepared(_host_path(volume.host_path))
        if volume.config_map is not None:
            kind, own = "configmap", Projection(config_map=volume.config_map)
        elif volume.secret is not None:
            kind, own = "secret", Projection(secret=volume.secret)
        elif volume.downward_api is not None:
            kind, own = "downward-api", Projection(downward_api=volume.downward_api)
        elif volume.projected is not None:
            kind = "projected"
            files = await self._projected(pod, volume, volume.projected, around)
            return self._written(pod, kind, volume, files)
        else:
            raise VolumeError("this agent has no driver for its kind")
        files = await self._files(pod, volume, own, _default_mode(own), around)
        return self._written(pod, kind, volume, files)

    def _written(
        self, pod: RunPod, kind: str, volume: RunVolume, files: Mapping[str, FileContent]
    ) -> Prepared:
        path = self._path(pod, kind, volume.name)
        if kind in ("secret", "projected"):
            path.mkdir(parents=True, exist_ok=True)
            self._mounts.mount(path, None)
        atomicfiles.write(path, files, self._token, _group(pod))
        return Prepared(path, read_only=True)

    def _path(self, pod: RunPod, kind: str, name: str) -> Path:
        return self._root / "pods" / pod.metadata.uid / "volumes" / f"kubernetes.io~{kind}" / name

    def _empty_dir(self, path: Path, source: EmptyDir, group: int | None) -> None:
        is_new = not path.exists()
        path.mkdir(parents=True, exist_ok=True)
        if source.medium == _MEMORY:
            size = source.size_limit
            self._mounts.mount(path, None if size is None else quantity.parse(size, "memory"))
        elif source.medium:
            raise VolumeError(f"this agent has no medium {source.medium}")
        if is_new:
            path.chmod(0o777)
            if group is not None:
                os.chown(path, -1, group)
                path.chmod(0o2777)

    async def _projected(
        self, pod: RunPod, volume: RunVolume, source: ProjectedVolume, around: PodSurroundings
    ) -> dict[str, FileContent]:
        found: dict[str, FileContent] = {}
        for one in source.sources or ():
            found |= await self._files(pod, volume, one, source.default_mode, around)
        return found

    async def _files(
        self, pod: RunPod, volume: RunVolume, source: Projection, mode: int, around: PodSurroundings
    ) -> dict[str, FileContent]:
        namespace = pod.metadata.namespace
        if source.config_map is not None:
            wanted = source.config_map
            found = await self._objects.config_map(namespace, wanted.name)
            return _of_object(found, wanted, wanted.name, "configmap", mode)
        if source.secret is not None:
            wanted = source.secret
            name = wanted.secret_name or wanted.name
            found = await self._objects.secret(namespace, name)
            return _of_object(found, wanted, name, "secret", mode)
        if source.downward_api is not None:
            return _of_pod(pod, source.downward_api, mode, around)
        if source.service_account_token is not None:
            return await self._of_token(pod, source.service_account_token, mode)
        raise VolumeError(f"{volume.name} has a source that this agent does not know")

    async def _of_token(
        self, pod: RunPod, wanted: TokenProjection, mode: int
    ) -> dict[str, FileContent]:
        key = (pod.metadata.uid, wanted.audience, str(wanted.expiration_seconds))
        known = self._tokens.get(key)
        if known is None or self._is_old(known):
            status = await self._objects.token(pod, wanted.audience, wanted.expiration_seconds)
            known = self._tokens[key] = _Token(status, self._clock())
        content = known.status.token.encode()
        context = pod.spec.security_context
        if context is not None and context.fs_group is not None:
            return {wanted.path: FileContent(content, _TOKEN_MODE | 0o040)}
        users = {
            one.security_context.run_as_user if one.security_context is not None else None
            for one in pod.spec.all_containers
        }
        whole = context.run_as_user if context is not None else None
        user = next(iter(users)) if len(users) == 1 else None
        owner = user if user is not None else whole if users == {None} else None
        if owner is not None:
            return {wanted.path: FileContent(content, _TOKEN_MODE, owner)}
        return {wanted.path: FileContent(content, mode)}

    def _is_old(self, known: _Token) -> bool:
        expires_s = times.seconds(known.status.expiration_timestamp)
        if expires_s is None:
            return True
        return self._clock() > known.issued_s + _RENEW_PART * (expires_s - known.issued_s)


def _group(pod: RunPod) -> int | None:
    context = pod.spec.security_context
    return context.fs_group if context is not None else None


def _default_mode(source: Projection) -> int:
    chosen = source.config_map or source.secret or source.downward_api
    return chosen.default_mode if chosen is not None else 0o644


def _of_object(
    found: ConfigObject | None, wanted: ObjectVolume, name: str, kind: str, mode: int
) -> dict[str, FileContent]:
    if found is None:
        if wanted.optional:
            return {}
        raise VolumeError(f'{kind} "{name}" not found')
    is_secret = kind == "secret"
    data = {
        key: base64.b64decode(text) if is_secret else text.encode()
        for key, text in (found.data or {}).items()
    }
    data |= {key: base64.b64decode(text) for key, text in (found.binary_data or {}).items()}
    if wanted.items is None:
        return {key: FileContent(content, mode) for key, content in data.items()}
    files = {}
    for item in wanted.items:
        if item.key in data:
            chosen = item.mode if item.mode is not None else mode
            files[item.path] = FileContent(data[item.key], chosen)
        elif not wanted.optional:
            raise VolumeError(f"references non-existent {kind} key: {item.key}")
    return files


def _of_pod(
    pod: RunPod, source: DownwardVolume, mode: int, around: PodSurroundings
) -> dict[str, FileContent]:
    files = {}
    for item in source.items or ():
        if item.field_ref is not None:
            text = downward.field_value(pod, item.field_ref.field_path, around)
        elif item.resource_field_ref is not None:
            first = pod.spec.containers[0]
            text = downward.resource_value(pod, first, item.resource_field_ref, around)
        else:
            continue
        chosen = item.mode if item.mode is not None else mode
        files[item.path] = FileContent(text.encode(), chosen)
    return files


_KINDS: Final[Mapping[str, tuple[Callable[[int], bool], str]]] = {
    "Directory": (stat.S_ISDIR, "is not a directory"),
    "DirectoryOrCreate": (stat.S_ISDIR, "is not a directory"),
    "File": (stat.S_ISREG, "is not a file"),
    "FileOrCreate": (stat.S_ISREG, "is not a file"),
    "Socket": (stat.S_ISSOCK, "is not a socket"),
    "CharDevice": (stat.S_ISCHR, "is not a character device"),
    "BlockDevice": (stat.S_ISBLK, "is not a block device"),
}


def _host_path(source: HostPath) -> Path:
    path = Path(source.path)
    if ".." in path.parts:
        raise VolumeError(f"hostPath: path must not contain '..': {path}")
    if not path.exists():
        if source.type == "DirectoryOrCreate":
            path.mkdir(parents=True, mode=0o755)
        elif source.type == "FileOrCreate":
            path.touch(mode=0o644)
    known = _KINDS.get(source.type)
    if known is None:
        return path
    fits, problem = known
    if not path.exists() or not fits(path.stat().st_mode):
        raise VolumeError(f"hostPath type check failed: {path} {problem}")
    return path
