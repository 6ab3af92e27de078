"""The files of configMap, secret, downwardAPI and projected volumes, from the API's objects."""

from collections.abc import Iterable, Mapping

from bindery.nodeagent.volumes.atomicwriter import VolumeFile
from bindery.nodeagent.volumes.interface import MountError, PodContent
from bindery.nodeagent.volumes.sources import (
    KeyedSource,
    MountingPod,
    PodFieldSource,
    PodVolumeSource,
    ProjectedPart,
    ProjectedSource,
    TokenFile,
)
from bindery.nodecore.volumes.populator import VolumeError

_OF_OWNER = 0o600
Files = dict[str, VolumeFile]


async def files_of(source: PodVolumeSource, pod: MountingPod, content: PodContent) -> Files:
    """Return the files of a volume by their paths.

    Raises:
        VolumeError: an object or a key is missing that is not optional.
    """
    if source.config_map is not None:
        return await _of_map(source.config_map, pod, content, source.config_map.default_mode)
    if source.secret is not None:
        return await _of_secret(source.secret, pod, content, source.secret.default_mode)
    if source.downward_api is not None:
        return _of_fields(source.downward_api, pod, content, source.downward_api.default_mode)
    if source.projected is not None:
        return await _projected(source.projected, pod, content)
    raise MountError(f"volume {source.name} has no source")


async def _projected(source: ProjectedSource, pod: MountingPod, content: PodContent) -> Files:
    files: Files = {}
    errors = []
    for part in source.sources or ():
        try:
            files |= await _of_part(part, pod, content, source.default_mode)
        except VolumeError as error:
            errors.append(str(error))
    if errors:
        raise MountError(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")
    return files


async def _of_part(part: ProjectedPart, pod: MountingPod, content: PodContent, mode: int) -> Files:
    if part.config_map is not None:
        return await _of_map(part.config_map, pod, content, mode)
    if part.secret is not None:
        return await _of_secret(part.secret, pod, content, mode)
    if part.downward_api is not None:
        return _of_fields(part.downward_api, pod, content, mode)
    if part.service_account_token is not None:
        return await _of_token(part.service_account_token, pod, content, mode)
    raise MountError("a projected source has no kind that this node can mount")


async def _of_map(
    source: KeyedSource, pod: MountingPod, content: PodContent, default_mode: int
) -> Files:
    data = await content.config_map(pod.metadata.namespace, source.name)
    if data is None and not source.optional:
        raise MountError(f'configmap "{source.name}" not found')
    return _chosen(source, data or {}, default_mode, "configmap references non-existent config key")


async def _of_secret(
    source: KeyedSource, pod: MountingPod, content: PodContent, default_mode: int
) -> Files:
    name = source.secret_name or source.name
    data = await content.secret(pod.metadata.namespace, name)
    if data is None and not source.optional:
        raise MountError(f'secret "{name}" not found')
    return _chosen(source, data or {}, default_mode, "references non-existent secret key")


def _chosen(
    source: KeyedSource, data: Mapping[str, bytes], default_mode: int, complaint: str
) -> Files:
    if not source.items:
        return {key: VolumeFile(value, default_mode) for key, value in data.items()}
    files: Files = {}
    for item in source.items:
        if item.key in data:
            mode = default_mode if item.mode is None else item.mode
            files[item.path] = VolumeFile(data[item.key], mode)
        elif not source.optional:
            raise MountError(f"{complaint}: {item.key}")
    return files


def _of_fields(
    source: PodFieldSource, pod: MountingPod, content: PodContent, default_mode: int
) -> Files:
    return {
        item.path: VolumeFile(
            content.value(pod, item).encode(), default_mode if item.mode is None else item.mode
        )
        for item in source.items or ()
    }


async def _of_token(
    source: TokenFile, pod: MountingPod, content: PodContent, default_mode: int
) -> Files:
    # With a group, the change of the group makes it 0640.
    is_owned = pod.fs_user is not None or pod.fs_group is not None
    mode = _OF_OWNER if is_owned else default_mode
    token = await content.token(pod, source)
    return {source.path: VolumeFile(token.encode(), mode, pod.fs_user)}


def nested(name: str, pod: MountingPod) -> Iterable[str]:
    """Return the directories in the volume on which containers mount other volumes."""
    found = set()
    for container in pod.all_containers:
        mounts = {one.mount_path.rstrip("/"): one.name for one in container.volume_mounts or ()}
        for outer in (path for path, volume in mounts.items() if volume == name):
            for inner in mounts:
                if inner.startswith(f"{outer}/"):
                    found.add(inner.removeprefix(f"{outer}/"))
    return sorted(found)
