"""Has images on the node before containers need them: pull policies, secrets, pauses.

Source: the kubelet's `images/image_manager.go`, Kubernetes 1.36. Images of all pods are pulled at
one time.
"""

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from bindery.nodeagent.containers.definitions import cri_pb2 as cri
from bindery.nodeagent.containers.errors import RuntimeCallError, StartError
from bindery.nodeagent.containers.objects import ConfigObject, PodObjects
from bindery.nodeagent.containers.podspec import RunContainer, RunPod
from bindery.nodeagent.containers.runtime import Runtime
from bindery.nodeagent.containers.security import ImageUser
from bindery.nodecore.podsync.restarts import RestartBackoff

ALWAYS: Final = "Always"
NEVER: Final = "Never"

_DOCKER_HUB: Final = "index.docker.io"
_TAGGED: Final = re.compile(r".*(:[\w][\w.-]{0,127}|@[a-z0-9]+:[0-9a-fA-F]+)")
_NAME: Final = re.compile(
    r"([a-zA-Z0-9][a-zA-Z0-9.-]*(:[0-9]+)?/)?[a-z0-9]+([._/-]+[a-z0-9]+)*"
    r"(:[\w][\w.-]{0,127})?(@[a-z0-9]+:[0-9a-fA-F]+)?"
)


@dataclass(frozen=True)
class Credential:
    """The account of a registry, of which the name may begin with a part of a path."""

    registry: str
    auth: cri.AuthConfig

    def fits(self, image: str) -> bool:
        """Return whether the account is for `image`."""
        wanted = self.registry.removeprefix("https://").removeprefix("http://").rstrip("/")
        for version in ("/v1", "/v2"):
            wanted = wanted.removesuffix(version)
        name = _with_registry(image)
        return name == wanted or name.startswith(f"{wanted}/")


def with_tag(image: str) -> str:
    """Return `image` with a tag or digest: `latest` if it has none.

    Raises:
        StartError: it is not the name of an image.
    """
    if not _NAME.fullmatch(image):
        message = f'Failed to apply default image tag "{image}": couldn\'t parse image name'
        raise StartError("InvalidImageName", f'{message} "{image}": invalid reference format')
    return image if _TAGGED.fullmatch(image.rpartition("/")[2]) else f"{image}:latest"


def _with_registry(image: str) -> str:
    first = image.partition("/")[0]
    has_registry = "/" in image and ("." in first or ":" in first or first == "localhost")
    if has_registry:
        return image.replace("docker.io/", f"{_DOCKER_HUB}/", 1) if first == "docker.io" else image
    return f"{_DOCKER_HUB}/{image if '/' in image else f'library/{image}'}"


def credentials(secrets: Sequence[ConfigObject]) -> list[Credential]:
    """Return the accounts in pull secrets, the longest registry first; unreadable ones are left."""
    found = []
    for secret in secrets:
        data = secret.data or {}
        for key, is_nested in ((".dockerconfigjson", True), (".dockercfg", False)):
            if key in data:
                found += _of_document(data[key], is_nested=is_nested)
    return sorted(found, key=lambda one: len(one.registry), reverse=True)


def _of_document(text: str, *, is_nested: bool) -> list[Credential]:
    try:
        document: Any = msgspec.json.decode(base64.b64decode(text))
        listed = document.get("auths", {}) if is_nested else document
        return [_credential(registry, entry) for registry, entry in listed.items()]
    except (ValueError, AttributeError, binascii.Error):
        return []


def _credential(registry: str, entry: Any) -> Credential:
    name, password = entry.get("username", ""), entry.get("password", "")
    if entry.get("auth"):
        name, _, password = base64.b64decode(entry["auth"]).decode().partition(":")
    return Credential(registry, cri.AuthConfig(username=name, password=password))


class Images:
    """The images of the node.

    `report` gets the type, the reason and the text of an event of the pod.
    """

    def __init__(self, runtime: Runtime, objects: PodObjects, clock: Callable[[], float]) -> None:
        self._runtime, self._objects, self._clock = runtime, objects, clock
        self._backoff = RestartBackoff(clock)
        self._failed_s: dict[str, float] = {}
        self._last: dict[str, str] = {}

    async def ensure(
        self,
        pod: RunPod,
        container: RunContainer,
        sandbox: cri.PodSandboxConfig,
        report: Callable[[str, str, str], None],
    ) -> tuple[str, ImageUser]:
        """Return the reference of a container's image, which is then on the node, and its user.

        Raises:
            StartError: the image cannot be had now.
        """
        name = with_tag(container.image)
        policy = container.image_pull_policy
        present = None if policy == ALWAYS else await self._inspect(name)
        if present is not None:
            text = f'Container image "{container.image}" already present on machine'
            report("Normal", "Pulled", f"{text} and can be accessed by the pod")
            return present.id, _user(present)
        if policy == NEVER:
            text = f'Container image "{container.image}" is not present with pull policy of Never'
            report("Warning", "ErrImageNeverPull", text)
            raise StartError("ErrImageNeverPull", text)
        reference = await self._pull(pod, container.image, name, sandbox, report)
        return reference, _user(await self._inspect(reference))

    async def _inspect(self, name: str) -> cri.Image | None:
        try:
            return await self._runtime.image(name)
        except RuntimeCallError as error:
            raise StartError("ImageInspectError", f'Failed to inspect image "": {error}') from error

    async def _pull(
        self,
        pod: RunPod,
        image: str,
        name: str,
        sandbox: cri.PodSandboxConfig,
        report: Callable[[str, str, str], None],
    ) -> str:
        key = f"{pod.metadata.uid}_{image}"
        now_s = self._clock()
        failed_s = self._failed_s.get(key)
        until_s = None if failed_s is None else self._backoff.waits_until_s(key, failed_s)
        if until_s is not None:
            text = f'Back-off pulling image "{image}"'
            report("Normal", "BackOff", text)
            raise StartError("ImagePullBackOff", f"{text}: {self._last[key]}", until_s)
        report("Normal", "Pulling", f'Pulling image "{image}"')
        try:
            reference = await self._try_accounts(pod, name, sandbox)
        except RuntimeCallError as error:
            text = f'Failed to pull image "{image}": {error}'
            report("Warning", "Failed", text)
            ended_s = self._clock()
            self._backoff.start(key, ended_s)
            self._failed_s[key], self._last[key] = ended_s, f"ErrImagePull: {error}"
            retry_s = self._backoff.waits_until_s(key, ended_s)
            raise StartError("ErrImagePull", str(error), retry_s) from error
        took_s = self._clock() - now_s
        report("Normal", "Pulled", f'Successfully pulled image "{image}" in {took_s:.3f}s')
        self.forget(pod.metadata.uid)
        return reference

    async def _try_accounts(self, pod: RunPod, name: str, sandbox: cri.PodSandboxConfig) -> str:
        spec = cri.ImageSpec(image=name, annotations=pod.metadata.annotations)
        fitting = [one for one in await self._credentials(pod) if one.fits(name)]
        failures = []
        accounts: list[cri.AuthConfig | None] = [one.auth for one in fitting]
        for auth in accounts or [None]:
            try:
                return await self._runtime.pull(spec, auth, sandbox)
            except RuntimeCallError as error:
                failures.append(error)
        raise failures[-1]

    async def _credentials(self, pod: RunPod) -> list[Credential]:
        secrets = []
        for wanted in pod.spec.image_pull_secrets or ():
            found = await self._objects.secret(pod.metadata.namespace, wanted.name)
            if found is not None:
                secrets.append(found)
        return credentials(secrets)

    def forget(self, uid: str) -> None:
        """Forget the failures of the pod `uid`."""
        self._backoff.forget(f"{uid}_")
        for known in (self._failed_s, self._last):
            for key in [key for key in known if key.startswith(f"{uid}_")]:
                del known[key]


def _user(image: cri.Image | None) -> ImageUser:
    if image is None:
        return ImageUser()
    if image.HasField("uid"):
        return ImageUser(image.uid.value)
    return ImageUser(None, image.username)
