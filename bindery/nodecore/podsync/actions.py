"""What to do next with the containers of a pod.

Source: `computePodActions` and `computeInitContainerActions` of Kubernetes 1.36, without changes of
resources in place and without restarts of all containers.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from bindery.nodecore.podsync.facts import (
    NEVER,
    ON_FAILURE,
    ContainerRules,
    PodRules,
    ProbeVerdict,
    ProbeVerdicts,
    RuntimeContainer,
    RuntimePod,
    RuntimeState,
)
from bindery.nodecore.podsync.restarts import is_due, restarts_after


class KillReason(StrEnum):
    """Why a container is stopped; the grace period depends on it."""

    UNKNOWN = "Unknown"
    STARTUP_PROBE = "StartupProbe"
    LIVENESS_PROBE = "LivenessProbe"


@dataclass(frozen=True)
class Kill:
    """A container to stop. `message` is the text of the event."""

    container: RuntimeContainer
    message: str
    reason: KillReason = KillReason.UNKNOWN


@dataclass(frozen=True)
class PodActions:
    """What to do, in the order of the attributes.

    Attributes:
        kill_pod: stop all containers and the sandbox.
        create_sandbox: make a sandbox, the one with the number `attempt`.
        start_init: the init containers to start, by name.
    """

    kill_pod: bool = False
    create_sandbox: bool = False
    attempt: int = 0
    sandbox_id: str = ""
    kill: tuple[Kill, ...] = ()
    start_init: tuple[str, ...] = ()
    start: tuple[str, ...] = ()


def needs_sandbox(rules: PodRules, seen: RuntimePod) -> tuple[bool, int, str]:
    """Return whether a new sandbox is needed, its attempt, and the newest sandbox's id."""
    if not seen.sandboxes:
        return True, 0, ""
    newest = seen.sandboxes[0]
    ready = sum(one.is_ready for one in seen.sandboxes)
    if ready > 1 or not newest.is_ready:
        return True, newest.attempt + 1, newest.id
    if newest.host_network != rules.host_network:
        return True, newest.attempt + 1, ""
    if not rules.host_network and not newest.addresses:
        return True, newest.attempt + 1, newest.id
    return False, newest.attempt, newest.id


def next_actions(rules: PodRules, seen: RuntimePod, verdicts: ProbeVerdicts) -> PodActions:
    """Return what to do with the containers of a pod that is not ending."""
    create, attempt, sandbox_id = needs_sandbox(rules, seen)
    actions = PodActions(create, create, attempt, sandbox_id)
    if create:
        return _from_the_start(rules, seen, actions)
    actions, has_initialized = _of_init_containers(rules, seen, verdicts, actions)
    if actions.kill_pod or not has_initialized:
        return actions
    return _of_app_containers(rules, seen, verdicts, actions)


def _from_the_start(rules: PodRules, seen: RuntimePod, actions: PodActions) -> PodActions:
    if not rules.restarts_on_failure and actions.attempt != 0 and seen.containers:
        return replace(actions, create_sandbox=False)
    due = tuple(
        one.name
        for one in rules.containers
        if not (
            (one.restart_policy or rules.restart_policy) == ON_FAILURE and _ended_well(one, seen)
        )
    )
    if not due and any(seen.container(one.name) for one in rules.containers):
        return replace(actions, create_sandbox=False)
    if rules.init_containers:
        return replace(actions, start_init=(rules.init_containers[0].name,))
    return replace(actions, start=due)


def _ended_well(container: ContainerRules, seen: RuntimePod) -> bool:
    found = seen.container(container.name)
    return found is not None and found.state is RuntimeState.EXITED and found.exit_code == 0


@dataclass
class _Init:
    """What is found out while init containers are looked at from the last to the first."""

    start: list[int]
    kill: list[Kill]
    has_initialized: bool
    was_initialized: bool
    kill_pod: bool = False


def _of_init_containers(
    rules: PodRules, seen: RuntimePod, verdicts: ProbeVerdicts, actions: PodActions
) -> tuple[PodActions, bool]:
    """Return the actions with those of init containers, and whether all have done their work."""
    if not rules.init_containers:
        return actions, True
    states = (seen.container(one.name) for one in rules.containers)
    was = any(
        one is not None and one.state in (RuntimeState.CREATED, RuntimeState.RUNNING)
        for one in states
    )
    found = _Init([], [], has_initialized=was, was_initialized=was)
    # From the last one: those before it may have been removed from the runtime.
    for index in reversed(range(len(rules.init_containers))):
        if _look_at_init(rules, index, seen, verdicts, found):
            break
    if not found.was_initialized:
        found.start.append(0)
    if found.kill_pod:
        return replace(actions, kill_pod=True), False
    indexes = sorted(set(found.start))
    names = tuple(rules.init_containers[index].name for index in indexes)
    return replace(actions, start_init=names, kill=tuple(found.kill)), found.has_initialized


def _look_at_init(
    rules: PodRules, index: int, seen: RuntimePod, verdicts: ProbeVerdicts, found: _Init
) -> bool:
    """Enter what follows from one init container; return whether those before it do not count."""
    container = rules.init_containers[index]
    status = seen.container(container.name)
    if status is None:
        if found.was_initialized and container.is_sidecar:
            found.start.append(index)
        return False
    if found.was_initialized and not container.is_sidecar:
        return False
    if status.state is RuntimeState.CREATED:
        found.start.append(index)
    elif status.state is RuntimeState.RUNNING:
        if container.is_sidecar:
            _look_at_sidecar(rules, index, status, verdicts, found)
    elif status.state is RuntimeState.EXITED:
        _look_at_ended(rules, index, status, found)
    else:
        _look_at_unknown(rules, index, status, found)
    # The init containers before this one have done their work; sidecars must go on.
    found.was_initialized = True
    return found.kill_pod


def _look_at_sidecar(
    rules: PodRules, index: int, status: RuntimeContainer, verdicts: ProbeVerdicts, found: _Init
) -> None:
    container = rules.init_containers[index]
    if container.has_startup_probe:
        verdict = verdicts.startup.get(status.id)
        if verdict is ProbeVerdict.FAILURE:
            message = f"Init container {container.name} failed startup probe"
            found.kill.append(Kill(status, message, KillReason.STARTUP_PROBE))
            found.start.append(index)
        if verdict is not ProbeVerdict.SUCCESS:
            return
    if index == len(rules.init_containers) - 1:
        found.has_initialized = True
    elif not found.was_initialized:
        found.start.append(index + 1)
    if _is_changed(container, status):
        message = f"Init container {container.name} definition changed"
        found.kill.append(Kill(status, message))
        found.start.append(index)
    elif verdicts.liveness.get(status.id) is ProbeVerdict.FAILURE:
        message = f"Init container {container.name} failed liveness probe"
        found.kill.append(Kill(status, message, KillReason.LIVENESS_PROBE))
        found.start.append(index)


def _look_at_ended(rules: PodRules, index: int, status: RuntimeContainer, found: _Init) -> None:
    container = rules.init_containers[index]
    if container.is_sidecar:
        found.start.append(index)
    elif status.exit_code != 0:
        if restarts_after(rules, container, status.exit_code):
            found.start.append(index)
        else:
            found.kill_pod = True
    elif index == len(rules.init_containers) - 1:
        found.has_initialized = True
    else:
        found.start.append(index + 1)


def _look_at_unknown(rules: PodRules, index: int, status: RuntimeContainer, found: _Init) -> None:
    """Stop it before it is started again: it may run or not."""
    container = rules.init_containers[index]
    message = f'Init container is in "{status.state}" state, try killing it'
    if container.is_sidecar or rules.restarts_on_failure:
        found.kill.append(Kill(status, f"{message} before restart"))
        found.start.append(index)
    else:
        found.kill_pod = True


def _of_app_containers(
    rules: PodRules, seen: RuntimePod, verdicts: ProbeVerdicts, actions: PodActions
) -> PodActions:
    start: list[str] = []
    kill = list(actions.kill)
    kept = 0
    for container in rules.containers:
        status = seen.container(container.name)
        if status is None or status.state is not RuntimeState.RUNNING:
            if is_due(rules, container, seen):
                start.append(container.name)
                if status is not None and status.state is RuntimeState.UNKNOWN:
                    message = (
                        f'Container is in "{status.state}" state, try killing it before restart'
                    )
                    kill.append(Kill(status, message))
            continue
        wanted = _kill_of_running(rules, container, status, verdicts)
        if wanted is None:
            kept += 1
            continue
        order, restarts = wanted
        if restarts:
            order = replace(order, message=f"{order.message}, will be restarted")
            start.append(container.name)
        kill.append(order)
    if kept == 0 and not start:
        return replace(actions, kill_pod=True, start_init=(), kill=tuple(kill))
    return replace(actions, start=tuple(start), kill=tuple(kill))


def _kill_of_running(
    rules: PodRules, container: ContainerRules, status: RuntimeContainer, verdicts: ProbeVerdicts
) -> tuple[Kill, bool] | None:
    """Return why a running container is stopped, and whether it starts again; None: it stays."""
    own = container.restart_policy
    restarts = own != NEVER if own is not None else rules.restarts_on_failure
    name = container.name
    if _is_changed(container, status):
        return Kill(status, f"Container {name} definition changed"), True
    if verdicts.liveness.get(status.id) is ProbeVerdict.FAILURE:
        message = f"Container {name} failed liveness probe"
        return Kill(status, message, KillReason.LIVENESS_PROBE), restarts
    if verdicts.startup.get(status.id) is ProbeVerdict.FAILURE:
        message = f"Container {name} failed startup probe"
        return Kill(status, message, KillReason.STARTUP_PROBE), restarts
    return None


def _is_changed(container: ContainerRules, status: RuntimeContainer) -> bool:
    return bool(status.definition) and status.definition != container.definition
