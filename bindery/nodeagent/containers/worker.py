"""Runs one pod from its admission to its end, in a task of its own.

A slow call holds only this pod. All state is in the API server and in the runtime: a new worker
after a restart of the agent goes on where the old one was. `nodecore.podsync` decides; `starting`
and `killing` carry out.
"""

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import structlog

from bindery.api import times
from bindery.api.states import ENDED_POD_PHASES
from bindery.kube.errors import ConflictError, KubeError, NotFoundError
from bindery.nodeagent import pod_status
from bindery.nodeagent.admission import PREEMPTING
from bindery.nodeagent.containers import logfiles, rules, seen, statuspatch
from bindery.nodeagent.containers.errors import ClaimsError, ContainerError, StartError
from bindery.nodeagent.containers.fields import UNSUPPORTED
from bindery.nodeagent.containers.killing import Killer
from bindery.nodeagent.containers.parts import NodeParts
from bindery.nodeagent.containers.podspec import RUN_PODS, RunPod
from bindery.nodeagent.containers.prober import Prober
from bindery.nodeagent.containers.starting import Starter
from bindery.nodeagent.containers.statuspatch import PodReport, Transitions
from bindery.nodeagent.containers.statuswriter import StatusWriter
from bindery.nodeagent.volumes.keeper import PodVolumePath
from bindery.nodecore.admission.result import Admission
from bindery.nodecore.cgroups.manager import CgroupError
from bindery.nodecore.podsync import phase, statuses
from bindery.nodecore.podsync.actions import PodActions, next_actions
from bindery.nodecore.podsync.facts import PodRules, RuntimePod, RuntimeState
from bindery.nodecore.podsync.phase import PodCondition
from bindery.nodecore.podsync.statuses import ContainerReport, StartFailure
from bindery.nodecore.volumes.populator import VolumeError

SYNC_S: Final = 60.0
"""Seconds after which a pod is looked at again without a reason, as in the kubelet."""
RETRY_S: Final = 10.0
"""Seconds after a failure until the next attempt, as in the kubelet; up to half more by chance."""
_DEADLINE: Final = "DeadlineExceeded"
_PREEMPTED: Final = PodCondition(
    "DisruptionTarget",
    "True",
    "TerminationByKubelet",
    "Pod was preempted by Kubelet to accommodate a critical pod.",
)
_KEPT_ENDED: Final = 2
"""How many containers of a name are kept: the newest, and the one before it."""
_FAILURES: Final = (ContainerError, KubeError, CgroupError, VolumeError, OSError)

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class _Ending:
    """Why a pod ends: its reason and message are empty if its containers have done their work."""

    reason: str = ""
    message: str = ""


class PodWorker:
    """The worker of one pod; `run` returns when the pod is gone and nothing of it is left."""

    def __init__(self, pod: RunPod, parts: NodeParts) -> None:
        self.pod = pod
        self._parts = parts
        self._starter, self._killer = Starter(parts), Killer(parts)
        self._writer = StatusWriter(parts.client, parts.random, self._take_written)
        self._prober = Prober(
            parts.checks,
            current=self._current,
            changed=self.wake,
            report=lambda kind, reason, text: parts.report(self.pod, kind, reason, text),
            clock=parts.clock,
        )
        self._apps = rules.written(pod.status.container_statuses)
        self._inits = rules.written(pod.status.init_container_statuses)
        self._prober.seed({one.name: one for one in (*self._apps, *self._inits)})
        self._transitions = Transitions.of(pod)
        self._phase = pod.status.phase or phase.PENDING
        self._started_s = times.seconds(pod.status.start_time)
        self._failures: dict[str, StartFailure] = {}
        self._seen = RuntimePod()
        self._ending = _Ending() if self._phase in ENDED_POD_PHASES else None
        self._is_gone = self._is_checked = False
        self.ended = asyncio.Event()
        """Set when nothing of the pod runs, and what it held is released."""
        self._was_over = self._phase in ENDED_POD_PHASES
        """Whether the pod had ended before this worker: its status is final."""
        self._wake, self._interrupt = asyncio.Event(), asyncio.Event()
        self._wake.set()

    def update(self, pod: RunPod) -> None:
        """Take the pod as it is now; a deletion, or a shorter one, interrupts what is going on."""
        old, self.pod = self.pod, pod
        before_s = old.metadata.deletion_grace_period_seconds
        grace_s = pod.metadata.deletion_grace_period_seconds
        self._report_changes(old)
        if pod.is_being_deleted and (not old.is_being_deleted or grace_s != before_s):
            self._interrupt.set()
        self._wake.set()

    def _report_changes(self, old: RunPod) -> None:
        """Write an event about changes of the running pod that are not carried out."""
        pod, spec = self.pod, self.pod.spec
        before = [one.resources for one in old.spec.all_containers]
        if [one.resources for one in spec.all_containers] != before:
            text = "resources are not changed while containers run"
            self._parts.report(pod, "Warning", UNSUPPORTED, text)
        if len(spec.ephemeral_containers or ()) > len(old.spec.ephemeral_containers or ()):
            text = "ephemeral containers are not started"
            self._parts.report(pod, "Warning", UNSUPPORTED, text)

    def gone(self) -> None:
        """End what is left of the pod, which is no longer in the API."""
        self._is_gone = True
        self._interrupt.set()
        self._wake.set()

    def preempt(self, answer: Admission) -> None:
        """End the pod in favour of a critical one."""
        self._ending = _Ending(answer.reason, answer.message)
        self._interrupt.set()
        self._wake.set()

    def wake(self) -> None:
        """Look at the pod soon: something has changed in the runtime, or by a probe."""
        self._wake.set()

    async def run(self) -> None:
        """Run the pod until it is gone."""
        writer = asyncio.create_task(self._writer.run())
        try:
            delay_s = SYNC_S
            while not (self._is_gone and self.ended.is_set()):
                # Not wait_for(): in Python 3.11 it loses a cancellation that comes with the event.
                with suppress(TimeoutError):
                    async with asyncio.timeout(delay_s):
                        await self._wake.wait()
                self._wake.clear()
                delay_s = await self._attempt()
            await self._clean()
        finally:
            writer.cancel()
            await self._prober.stop()

    async def _attempt(self) -> float:
        """Look at the pod once; return the seconds until the next time."""
        self._interrupt.clear()
        work = asyncio.create_task(self._sync())
        stopped = asyncio.create_task(self._interrupt.wait())
        try:
            await asyncio.wait((work, stopped), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.cancel()
            return await work
        except asyncio.CancelledError:
            if not work.cancelled():
                raise
            return 0.0  # interrupted: look at the pod as it is now
        except _FAILURES as error:
            meta = self.pod.metadata
            log.warning("a pod does not go on", pod=meta.name, error=str(error))
            return self._pause_s()
        finally:
            work.cancel()
            stopped.cancel()

    def _pause_s(self) -> float:
        return RETRY_S * self._parts.random.uniform(1.0, 1.5)

    async def _sync(self) -> float:
        parts = self._parts
        self._seen = await seen.read(parts.runtime, self.pod.metadata.uid, parts.runtime_name)
        if self.ended.is_set():
            return await self._end_deletion()
        if self.pod.is_being_deleted or self._is_gone or self._ending is not None:
            return await self._end()
        if not await self._is_admitted():
            return await self._end()
        if self._started_s is None:
            self._started_s = parts.clock()
        deadline_s = self._deadline_s()
        if deadline_s is not None and deadline_s <= 0:
            text = "Pod was active on the node longer than the specified deadline"
            parts.report(self.pod, "Normal", _DEADLINE, text)
            self._ending = _Ending(_DEADLINE, text)
            return await self._end()
        if self._look() in ENDED_POD_PHASES:
            self._ending = _Ending()
            return await self._end()
        delay_s = await self._go_on()
        return delay_s if deadline_s is None else min(delay_s, deadline_s)

    async def _is_admitted(self) -> bool:
        """Return whether the pod may run; the status of one that may not is written."""
        parts, pod = self._parts, self.pod
        if not self._is_checked:
            problem = await parts.refusal(pod)
            if problem is not None:
                self._refuse(problem)
                return False
            self._is_checked = True
        answer = await parts.resources.admit(pod)
        if not answer.admit:
            self._refuse(answer)
        return answer.admit

    def _refuse(self, answer: Admission) -> None:
        pod = self.pod
        self._writer.offer(pod, pod_status.refused(pod, answer, self._parts.clock()))
        self._parts.report(pod, "Warning", answer.reason, answer.message)
        self._phase, self._ending = phase.FAILED, _Ending(answer.reason, answer.message)

    def _deadline_s(self) -> float | None:
        """Return the seconds until the pod's deadline, None without one."""
        wanted_s = self.pod.spec.active_deadline_seconds
        if wanted_s is None or self._started_s is None:
            return None
        return self._started_s + wanted_s - self._parts.clock()

    def _look(self, *, is_terminal: bool = False) -> str:
        """Work out the status of the pod, offer it for writing, and return the phase."""
        parts, pod = self._parts, self.pod
        found = rules.of_pod(pod)
        apps = statuses.app_reports(found, self._seen, self._apps, self._failures)
        inits = statuses.init_reports(found, self._seen, self._inits, self._failures)
        verdicts = self._prober.verdicts
        self._apps, self._inits = statuses.with_readiness(found, apps, inits, verdicts)
        if is_terminal:
            self._apps, self._inits = statuses.at_end(found, self._apps, self._inits)
        both = [*self._inits, *self._apps]
        was_initialized = any(
            one.state in (RuntimeState.RUNNING, RuntimeState.EXITED)
            for container in found.containers
            if (one := self._seen.container(container.name)) is not None
        )
        new = phase.phase(found, both, is_terminal=is_terminal, was_initialized=was_initialized)
        if is_terminal and new not in ENDED_POD_PHASES:
            new = phase.FAILED
        ending = self._ending or _Ending()
        if ending.reason or self._phase in ENDED_POD_PHASES:
            new = phase.FAILED if ending.reason else self._phase
        # Who sees that a pod is over gives others what it held, or removes it at once.
        is_busy = not is_terminal or parts.resources.has_claims(pod.metadata.uid)
        shown = self._phase if new in ENDED_POD_PHASES and is_busy else new
        conditions = phase.Conditions(
            found,
            self._seen,
            shown,
            self._apps,
            self._inits,
            {one.type: one.status for one in pod.status.conditions or ()},
        ).all()
        if ending.reason == PREEMPTING:
            conditions.append(_PREEMPTED)
        host = parts.around.host_addresses
        own = host if pod.spec.host_network else self._seen.addresses
        report = PodReport(
            shown,
            self._apps,
            self._inits,
            conditions,
            host,
            own or _old_addresses(pod),
            self._started_s or parts.clock(),
            ending.reason,
            ending.message,
            parts.resources.device_health(pod),
        )
        self._phase = shown
        patch = statuspatch.patch(pod, report, self._transitions, parts.clock())
        self._writer.offer(pod, patch)
        return new

    async def _go_on(self) -> float:
        """Do what is next; return the seconds until the next look at the pod."""
        parts, pod = self._parts, self.pod
        parts.places.make(pod.metadata.uid)
        try:
            volumes = await parts.volumes.prepare(pod)
        except VolumeError as error:
            text = f"Unable to attach or mount volumes: {error}"
            parts.report(pod, "Warning", "FailedMount", text)
            return self._pause_s()
        self._prober.start(pod.spec.all_containers)
        found = rules.of_pod(pod)
        actions = next_actions(found, self._seen, self._prober.verdicts)
        await self._prune()
        if actions.kill_pod:
            await self._killer.pod(pod, self._seen)
            if not actions.create_sandbox:
                return 0.0
        elif actions.kill:
            await self._killer.containers(pod, actions.kill, self._seen)
        delay_s = await self._start(found, actions, volumes)
        if actions.kill or actions.start or actions.start_init or actions.create_sandbox:
            self._seen = await seen.read(parts.runtime, pod.metadata.uid, parts.runtime_name)
            self._look()
            self._prober.kick()
        return delay_s

    async def _start(
        self, found: PodRules, actions: PodActions, volumes: Mapping[str, PodVolumePath]
    ) -> float:
        """Make the sandbox and start containers; return the seconds until the next attempt."""
        parts, pod = self._parts, self.pod
        if actions.create_sandbox:
            try:
                await parts.resources.prepare(pod)
                await self._starter.sandbox(pod, actions.attempt)
            except ClaimsError as error:
                text = f"Failed to prepare dynamic resources: {error}"
                parts.report(pod, "Warning", "FailedPrepareDynamicResources", text)
                return self._pause_s()
            except StartError as error:
                text = f"Failed to create pod sandbox: {error}"
                parts.report(pod, "Warning", "FailedCreatePodSandBox", text)
                return self._pause_s()
            self._seen = await seen.read(parts.runtime, pod.metadata.uid, parts.runtime_name)
            if not found.host_network and not self._seen.addresses:
                return self._pause_s()
            self._look()
        delays = [SYNC_S]
        sidecars = {one.name for one in found.init_containers if one.is_sidecar}
        for name in (*actions.start_init, *actions.start):
            retry_s = await self._start_one(name, volumes)
            if retry_s is None:
                continue
            delays.append(retry_s)
            if name in actions.start_init and name not in sidecars:
                break
        return min(delays)

    async def _start_one(self, name: str, volumes: Mapping[str, PodVolumePath]) -> float | None:
        """Start a container; return the seconds until the next attempt, None if it has started."""
        pod = self.pod
        container = next(one for one in pod.spec.all_containers if one.name == name)
        addresses = tuple(self._seen.addresses)
        if pod.spec.host_network:
            addresses = self._parts.around.host_addresses
        try:
            await self._starter.container(pod, container, self._seen, volumes, addresses)
        except StartError as error:
            self._failures[name] = StartFailure(error.reason, str(error))
            if error.retry_at_s is None:
                return self._pause_s()
            return max(0.0, error.retry_at_s - self._parts.clock())
        self._failures.pop(name, None)
        return None

    async def _prune(self) -> None:
        """Remove ended containers that have been replaced more than once."""
        kept: dict[str, int] = {}
        left = []
        for one in self._seen.containers:
            kept[one.name] = kept.get(one.name, 0) + 1
            if kept[one.name] > _KEPT_ENDED and one.state is RuntimeState.EXITED:
                # The log first: no other attempt looks for it after a kill.
                logfiles.remove(self._parts.places.log(self.pod, one.name, one.attempt))
                await self._parts.runtime.remove_container(seen.own_id(one.id))
            else:
                left.append(one)
        self._seen = replace(self._seen, containers=tuple(left))

    async def _end(self) -> float:
        """End all containers, write the last status, and give everything back."""
        parts, pod, uid = self._parts, self.pod, self.pod.metadata.uid
        self._prober.stop_restarts()
        was_started = bool(self._seen.sandboxes or self._seen.containers)
        if was_started and not self._was_over:
            self._look()
        await self._killer.pod(pod, self._seen)
        self._seen = await seen.read(parts.runtime, uid, parts.runtime_name)
        if self._seen.running:
            return 0.0
        await parts.resources.unprepare(pod)
        is_refused = self._ending is not None and self._ending.reason and not was_started
        if not self._was_over and not self._is_gone and not is_refused:
            self._look(is_terminal=True)
        await self._writer.flush()
        parts.resources.release(uid)
        await self._prober.stop()
        await parts.volumes.release(uid)
        parts.cgroups.remove(uid)
        self.ended.set()
        return await self._end_deletion()

    async def _end_deletion(self) -> float:
        """Let the API server remove the pod, if it is being deleted and has ended."""
        meta = self.pod.metadata
        if self.pod.is_being_deleted and not self._is_gone:
            with suppress(NotFoundError, ConflictError):
                await self._parts.client.delete(
                    RUN_PODS, meta.name, meta.namespace, uid=meta.uid, grace_period_s=0
                )
        return SYNC_S

    async def _clean(self) -> None:
        """Remove what the runtime and the disk have of the pod, which is gone from the API."""
        parts, meta = self._parts, self.pod.metadata
        parts.images.forget(meta.uid)
        parts.backoff.forget(f"{meta.uid}_")
        for sandbox in self._seen.sandboxes:
            try:
                await parts.runtime.remove_sandbox(sandbox.id)
            except ContainerError as error:
                log.warning("a sandbox stays", pod=meta.name, error=str(error))
        shutil.rmtree(parts.places.pod_logs(self.pod), ignore_errors=True)
        parts.volumes.forget(meta.uid)

    def _take_written(self, pod: RunPod) -> None:
        if pod.metadata.uid == self.pod.metadata.uid and pod.status.phase in ENDED_POD_PHASES:
            self._phase = pod.status.phase

    def _current(self, name: str) -> tuple[ContainerReport | None, str]:
        reports: Sequence[ContainerReport] = (*self._inits, *self._apps)
        found = next((one for one in reports if one.name == name), None)
        around = self._parts.around
        own = around.host_addresses if self.pod.spec.host_network else self._seen.addresses
        return found, next(iter(own), "")


def _old_addresses(pod: RunPod) -> tuple[str, ...]:
    """Return the address that was written: one that was seen once stays."""
    return (pod.status.pod_ip,) if pod.status.pod_ip else ()
