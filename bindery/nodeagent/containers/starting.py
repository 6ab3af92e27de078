"""Makes sandboxes and starts containers, each failure with the kubelet's reason.

Source: `createPodSandbox` and `startContainer`, Kubernetes 1.36.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import structlog

from bindery.kube.errors import KubeError
from bindery.nodeagent.candidates import core_pod
from bindery.nodeagent.containers import configs, environment, hostfiles, labels
from bindery.nodeagent.containers.checks import Target
from bindery.nodeagent.containers.configs import Start
from bindery.nodeagent.containers.definitions import cri_pb2 as cri
from bindery.nodeagent.containers.downward import PodSurroundings
from bindery.nodeagent.containers.errors import (
    CRASH_LOOP,
    CREATE,
    CREATE_CONFIG,
    CREATE_SANDBOX,
    POST_START,
    RUN,
    RuntimeCallError,
    StartError,
)
from bindery.nodeagent.containers.parts import NodeParts
from bindery.nodeagent.containers.podspec import RunContainer, RunPod
from bindery.nodeagent.volumes.keeper import PodVolumePath
from bindery.nodecore.cgroups.manager import CgroupError
from bindery.nodecore.podsync.facts import RuntimePod, RuntimeState
from bindery.nodecore.volumes.populator import VolumeError

_LEAST_S: Final = 2

log = structlog.get_logger(__name__)


class Starter:
    """Starts what a pod needs."""

    def __init__(self, parts: NodeParts) -> None:
        self._parts = parts

    async def sandbox(self, pod: RunPod, attempt: int) -> str:
        """Make a sandbox; return its id; raises StartError."""
        parts = self._parts
        try:
            config = self.sandbox_config(pod, attempt)
            parts.places.pod_logs(pod).mkdir(parents=True, exist_ok=True)
            handler = await parts.objects.handler(pod.spec.runtime_class_name)
            return await parts.runtime.run_sandbox(config, handler)
        except (RuntimeCallError, KubeError, CgroupError, OSError) as error:
            raise StartError(CREATE_SANDBOX, str(error)) from error

    def sandbox_config(self, pod: RunPod, attempt: int) -> cri.PodSandboxConfig:
        """Return the configuration of a sandbox; raises StartError, CgroupError, OSError."""
        parts = self._parts
        cgroup = parts.cgroups.ensure(core_pod(pod))
        groups = parts.volumes.groups(pod)
        return configs.sandbox(pod, attempt, cgroup, groups, parts.places, parts.node)

    async def container(
        self,
        pod: RunPod,
        container: RunContainer,
        seen: RuntimePod,
        volumes: Mapping[str, PodVolumePath],
        addresses: tuple[str, ...],
    ) -> None:
        """Start a container in the newest sandbox of `seen`; raises StartError."""
        self._wait_for_restart(pod, container, seen)
        sandbox = seen.sandboxes[0]
        sandbox_config = self.sandbox_config(pod, sandbox.attempt)
        try:
            start = await self._start_of(pod, container, seen, sandbox_config, volumes, addresses)
            config = configs.container(start, self._parts.places, self._parts.node)
        except StartError as error:
            self._parts.report(pod, "Warning", "Failed", f"Error: {error}")
            raise
        except (KubeError, OSError, ValueError) as error:
            self._parts.report(pod, "Warning", "Failed", f"Error: {error}")
            raise StartError(CREATE_CONFIG, str(error)) from error
        await self._create(pod, container, config, sandbox_config, (sandbox.id, addresses))

    def _wait_for_restart(self, pod: RunPod, container: RunContainer, seen: RuntimePod) -> None:
        """Raise StartError while a container that has ended waits for its restart."""
        ended = next(
            (
                one
                for one in seen.containers
                if one.name == container.name and one.state is RuntimeState.EXITED
            ),
            None,
        )
        if ended is None:
            return
        backoff, meta = self._parts.backoff, pod.metadata
        key = backoff_key(pod, container)
        until_s = backoff.waits_until_s(key, ended.finished_s)
        if until_s is None:
            backoff.start(key, ended.finished_s)
            return
        shown = f"{meta.name}_{meta.namespace}({meta.uid})"
        text = f"Back-off restarting failed container {container.name} in pod {shown}"
        self._parts.report(pod, "Warning", "BackOff", text)
        length = go_duration(backoff.length_s(key))
        raise StartError(
            CRASH_LOOP,
            f"back-off {length} restarting failed container={container.name} pod={shown}",
            until_s,
        )

    async def _start_of(
        self,
        pod: RunPod,
        container: RunContainer,
        seen: RuntimePod,
        sandbox: cri.PodSandboxConfig,
        volumes: Mapping[str, PodVolumePath],
        addresses: tuple[str, ...],
    ) -> Start:
        parts = self._parts

        def report(kind: str, reason: str, text: str) -> None:
            parts.report(pod, kind, reason, text)

        image, user = await parts.images.ensure(pod, container, sandbox, report)
        before = seen.container(container.name)
        attempt = (
            before.attempt + 1
            if before is not None
            else configs.attempt_by_logs(parts.places, pod, container.name)
        )
        around = self.around(pod, addresses)
        variables = await environment.variables(pod, container, parts.objects, around)
        hosts = parts.places.pod(pod.metadata.uid) / "etc-hosts"
        text = hostfiles.hosts(pod, addresses, parts.node.hosts, parts.node.names)
        hosts.write_text(text)
        cpuset, is_own = parts.resources.cpuset(pod, container.name)
        options = await parts.resources.options(pod, container)
        # A variable of the container comes after that of a plugin, as in the kubelet.
        variables = {**options.envs, **variables}
        sub_paths = await self._sub_paths(pod, container, volumes, variables)
        return Start(
            pod=pod,
            container=container,
            attempt=attempt,
            image=image,
            user=user,
            variables=variables,
            volumes=volumes,
            sub_paths=sub_paths,
            groups=parts.volumes.groups(pod),
            options=options,
            cpuset=cpuset,
            has_own_cpus=is_own,
        )

    async def _sub_paths(
        self,
        pod: RunPod,
        container: RunContainer,
        volumes: Mapping[str, PodVolumePath],
        variables: Mapping[str, str],
    ) -> Mapping[int, Path]:
        """Return where the parts of volumes are, by the index of the mount."""
        found = {}
        for index, mount in enumerate(container.volume_mounts or ()):
            below, volume = configs.sub_path(mount, variables), volumes.get(mount.name)
            if not below or volume is None:
                continue
            try:
                found[index] = await self._parts.volumes.part(
                    pod, container.name, index, volume, below
                )
            except (VolumeError, OSError) as error:
                log.warning("a part of a volume cannot be bound", pod=pod.metadata.name,
                            volume=mount.name, error=str(error))  # fmt: skip
                raise StartError(
                    CREATE_CONFIG,
                    f'failed to prepare subPath for volumeMount "{mount.name}" of container '
                    f'"{container.name}"',
                ) from error
        return found

    def around(self, pod: RunPod, addresses: tuple[str, ...]) -> PodSurroundings:
        """Return what values of the pod depend on; `addresses`: of its sandbox."""
        around = self._parts.around
        own = around.host_addresses if pod.spec.host_network else addresses
        return PodSurroundings(around.host_addresses, own, around.allocatable)

    async def _create(
        self,
        pod: RunPod,
        container: RunContainer,
        config: cri.ContainerConfig,
        sandbox_config: cri.PodSandboxConfig,
        sandbox: tuple[str, tuple[str, ...]],
    ) -> None:
        parts = self._parts
        sandbox_id, addresses = sandbox
        try:
            container_id = await parts.runtime.create_container(sandbox_id, config, sandbox_config)
        except RuntimeCallError as error:
            parts.report(pod, "Warning", "Failed", f"Error: {error}")
            raise StartError(CREATE, str(error)) from error
        parts.report(pod, "Normal", "Created", "Container created")
        parts.resources.created(pod, container.name)
        try:
            await parts.runtime.start_container(container_id)
        except RuntimeCallError as error:
            parts.report(pod, "Warning", "Failed", f"Error: {error}")
            raise StartError(RUN, str(error)) from error
        parts.report(pod, "Normal", "Started", "Container started")
        hooks = container.lifecycle
        if hooks is None or hooks.post_start is None:
            return
        target = Target(container, container_id, next(iter(addresses), ""))
        outcome = await parts.checks.hook(hooks.post_start, target)
        if not outcome.success:
            parts.report(pod, "Warning", "FailedPostStartHook", "PostStartHook failed")
            grace_s = pod.spec.termination_grace_period_seconds or _LEAST_S
            await parts.runtime.stop_container(container_id, max(grace_s, _LEAST_S))
            raise StartError(POST_START, outcome.text)


def backoff_key(pod: RunPod, container: RunContainer) -> str:
    """Return the key of a container's pauses; it changes with the container's definition."""
    return f"{pod.metadata.uid}_{container.name}_{labels.definition(container)}"


def go_duration(seconds: float) -> str:
    """Return whole seconds as Go prints a duration: 10s, 1m20s, 5m0s."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
