"""Reads from a pod what the decisions of `nodecore.podsync` need, and its earlier status. Pure."""

from bindery.api import times
from bindery.nodeagent.containers import labels
from bindery.nodeagent.containers.podspec import (
    EndedState,
    RunContainer,
    RunPod,
    WrittenState,
    WrittenStatus,
    WrittenUser,
)
from bindery.nodecore.podsync.facts import ContainerRules, ExitCodeRule, PodRules, RuntimeUser
from bindery.nodecore.podsync.statuses import (
    ContainerReport,
    Running,
    State,
    Terminated,
    Waiting,
)


def of_pod(pod: RunPod) -> PodRules:
    """Return the rules of `pod`."""
    spec = pod.spec
    return PodRules(
        containers=tuple(map(_container, spec.containers)),
        init_containers=tuple(map(_container, spec.init_containers or ())),
        restart_policy=spec.restart_policy,
        host_network=spec.host_network,
        is_deleted=pod.is_being_deleted,
        readiness_gates=tuple(one.condition_type for one in spec.readiness_gates or ()),
    )


def _container(container: RunContainer) -> ContainerRules:
    return ContainerRules(
        container.name,
        container.image,
        container.restart_policy,
        tuple(
            ExitCodeRule(one.action, one.exit_codes.operator, one.exit_codes.values or ())
            for one in container.restart_policy_rules or ()
            if one.exit_codes is not None
        ),
        has_startup_probe=container.startup_probe is not None,
        has_readiness_probe=container.readiness_probe is not None,
        definition=labels.definition(container),
    )


def written(statuses: list[WrittenStatus] | None) -> list[ContainerReport]:
    """Return the reports that an earlier run of an agent has written."""
    return [
        ContainerReport(
            one.name,
            one.image,
            _state(one.state),
            _ended(one.last_state.terminated),
            one.restart_count,
            one.image_id,
            one.container_id,
            one.ready,
            one.started,
            _user(one.user),
        )
        for one in statuses or ()
    ]


def _user(user: WrittenUser | None) -> RuntimeUser | None:
    if user is None or user.linux is None:
        return None
    linux = user.linux
    return RuntimeUser(linux.uid, linux.gid, tuple(linux.supplemental_groups or ()))


def _state(state: WrittenState) -> State:
    if state.running is not None:
        return Running(times.seconds(state.running.started_at) or 0.0)
    ended = _ended(state.terminated)
    if ended is not None:
        return ended
    waiting = state.waiting
    return Waiting(waiting.reason, waiting.message) if waiting is not None else Waiting()


def _ended(state: EndedState | None) -> Terminated | None:
    if state is None:
        return None
    return Terminated(
        state.exit_code,
        state.reason,
        state.message,
        times.seconds(state.started_at) or 0.0,
        times.seconds(state.finished_at) or 0.0,
        state.container_id,
    )
