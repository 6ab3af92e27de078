"""One pod from its admission to its end, with a fake runtime that can fail and hang."""

import base64
from pathlib import Path

from bindery.nodeagent.admission import PREEMPTED
from bindery.nodeagent.containers.objects import ConfigObject
from tests.nodeagent.containers.fakeruntime import ADDRESS, FakeRuntime
from tests.nodeagent.containers.harness import FixedObjects, container, manifest, running


async def test_a_pod_runs_and_completes(tmp_path: Path, runtime: FakeRuntime) -> None:
    async with running(tmp_path, manifest(container()), runtime) as pod:
        await pod.phase("Running")
        assert pod.status["podIP"] == ADDRESS
        assert pod.report()["ready"]
        assert pod.condition("Ready") == ("True", "")

        runtime.end("app", 0)

        await pod.phase("Succeeded")
        assert pod.report()["state"]["terminated"]["reason"] == "Completed"
        assert pod.condition("Ready") == ("False", "PodCompleted")


async def test_the_exit_code_of_a_failed_container_is_reported(
    tmp_path: Path, runtime: FakeRuntime
) -> None:
    async with running(tmp_path, manifest(container()), runtime) as pod:
        await pod.phase("Running")
        runtime.end("app", 3)

        await pod.phase("Failed")

        ended = pod.report()["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (3, "Error")


async def test_restarts_wait_for_the_back_off(tmp_path: Path, runtime: FakeRuntime) -> None:
    runtime.outcomes["app"] = [1, 1]
    spec = manifest(container(), restartPolicy="OnFailure")
    async with running(tmp_path, spec, runtime) as pod:
        await pod.until(lambda: pod.waits_for() == "CrashLoopBackOff")
        # The first restart comes at once; the second one waits.
        assert pod.report()["restartCount"] == 1
        assert "back-off 10s restarting" in pod.report()["state"]["waiting"]["message"]
        assert pod.report()["lastState"]["terminated"]["exitCode"] == 1
        assert pod.status["phase"] == "Running"

        pod.clock.ahead_s += 11

        await pod.until(lambda: "running" in pod.report()["state"])
        assert pod.report()["restartCount"] == 2


async def test_init_containers_come_one_after_the_other_and_sidecars_stay(
    tmp_path: Path, runtime: FakeRuntime
) -> None:
    spec = manifest(
        container(),
        initContainers=[container("first"), container("side", restartPolicy="Always")],
    )
    async with running(tmp_path, spec, runtime) as pod:
        await pod.until(lambda: runtime.running() == ["first"])
        assert pod.condition("Initialized") == ("False", "ContainersNotInitialized")
        runtime.end("first", 0)
        await pod.until(lambda: runtime.running() == ["side", "app"])
        await pod.phase("Running")
        assert pod.condition("Initialized") == ("True", "")

        runtime.end("app", 0)

        await pod.phase("Succeeded")
        assert runtime.running() == []
        assert pod.report("side", "initContainerStatuses")["state"]["terminated"]["exitCode"] == 143


async def test_a_failed_init_container_fails_the_pod(tmp_path: Path, runtime: FakeRuntime) -> None:
    runtime.outcomes["first"] = [1]
    spec = manifest(container(), initContainers=[container("first")])
    async with running(tmp_path, spec, runtime) as pod:
        await pod.phase("Failed")

        assert runtime.named("app") == []
        assert pod.waits_for() == "PodInitializing"


async def test_a_deleted_pod_runs_its_hook_and_then_gets_the_rest_of_its_grace_period(
    tmp_path: Path, runtime: FakeRuntime
) -> None:
    hooks = {"preStop": {"exec": {"command": ["save"]}}}
    async with running(tmp_path, manifest(container(lifecycle=hooks)), runtime) as pod:
        await pod.phase("Running")
        pod.delete(grace_s=7)

        await pod.until(lambda: pod.server.is_deleted)

        assert runtime.executed == [("app", ["save"])]
        assert runtime.named("app")[0].grace_s == 7
        assert pod.status["phase"] == "Failed"
        assert pod.status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143
        pod.worker.gone()
        await pod.task
        assert runtime.sandboxes == {}


async def test_a_shorter_deletion_ends_a_hook_that_hangs(
    tmp_path: Path, runtime: FakeRuntime
) -> None:
    hooks = {"preStop": {"exec": {"command": ["save"]}}}
    async with running(tmp_path, manifest(container(lifecycle=hooks)), runtime) as pod:
        await pod.phase("Running")
        runtime.hang("ExecSync")
        pod.delete(grace_s=3600)
        await pod.until(lambda: "ExecSync" in runtime.calls)

        pod.delete(grace_s=0)

        await pod.until(lambda: pod.server.is_deleted)


async def test_a_pod_is_deleted_while_its_image_is_pulled(
    tmp_path: Path, runtime: FakeRuntime
) -> None:
    runtime.images.clear()
    runtime.hang("PullImage")
    async with running(tmp_path, manifest(container()), runtime) as pod:
        await pod.until(lambda: "PullImage" in runtime.calls)

        pod.delete()

        await pod.until(lambda: pod.server.is_deleted)


async def test_an_image_that_cannot_be_pulled_waits_longer_and_longer(
    tmp_path: Path, runtime: FakeRuntime
) -> None:
    runtime.images.clear()
    runtime.fail("PullImage", "no such image")
    async with running(tmp_path, manifest(container()), runtime) as pod:
        await pod.until(lambda: pod.waits_for() == "ImagePullBackOff")
        assert pod.status["phase"] == "Pending"
        runtime.mend("PullImage")

        pod.clock.ahead_s += 11

        await pod.phase("Running")


async def test_a_pull_secret_is_used(tmp_path: Path, runtime: FakeRuntime) -> None:
    runtime.images.clear()
    account = base64.b64encode(b'{"auths":{"example.com":{"username":"me","password":"x"}}}')
    objects = FixedObjects()
    objects.secrets["pull"] = ConfigObject(data={".dockerconfigjson": account.decode()})
    spec = manifest(
        {**container(), "image": "example.com/app:1"}, imagePullSecrets=[{"name": "pull"}]
    )
    async with running(tmp_path, spec, runtime, objects) as pod:
        await pod.phase("Running")

        assert runtime.pulled_with == ["me"]


async def test_a_sandbox_that_fails_is_tried_again(tmp_path: Path, runtime: FakeRuntime) -> None:
    runtime.fail("RunPodSandbox", "no address left")
    async with running(tmp_path, manifest(container()), runtime) as pod:
        await pod.until(lambda: "RunPodSandbox" in runtime.calls)
        assert pod.waits_for() == "ContainerCreating"
        assert pod.condition("PodReadyToStartContainers") == ("False", "")
        runtime.mend("RunPodSandbox")

        await pod.phase("Running")


async def test_variables_come_from_all_their_sources(tmp_path: Path, runtime: FakeRuntime) -> None:
    objects = FixedObjects()
    objects.maps["settings"] = ConfigObject(data={"mode": "fast", "size": "3"})
    objects.secrets["key"] = ConfigObject(data={"password": base64.b64encode(b"secret").decode()})
    wanted = container(
        command=["run", "$(MODE)", "$$(MODE)", "$(NOT)"],
        envFrom=[{"prefix": "S_", "configMapRef": {"name": "settings"}}],
        env=[
            {"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "mode"}}},
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "key", "key": "password"}}},
            {"name": "WHERE", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "APP", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
            {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            {"name": "BOTH", "value": "$(MODE)-$(KEY)"},
        ],
        resources={"limits": {"cpu": "1500m"}},
    )
    async with running(tmp_path, manifest(wanted), runtime, objects) as pod:
        await pod.phase("Running")

        config = runtime.named("app")[0].config
        found = {one.key: one.value.decode() for one in config.envs}
        assert found == {
            "S_mode": "fast", "S_size": "3", "MODE": "fast", "KEY": "secret", "WHERE": ADDRESS,
            "APP": "web", "CPU": "2", "BOTH": "fast-secret",
        }  # fmt: skip
        assert list(config.command) == ["run", "fast", "$(MODE)", "$(NOT)"]


async def test_a_missing_config_map_is_named_until_it_comes(
    tmp_path: Path, runtime: FakeRuntime
) -> None:
    source = {"configMapKeyRef": {"name": "settings", "key": "mode"}}
    spec = manifest(container(env=[{"name": "MODE", "valueFrom": source}]))
    async with running(tmp_path, spec, runtime) as pod:
        await pod.until(lambda: pod.waits_for() == "CreateContainerConfigError")
        assert pod.report()["state"]["waiting"]["message"] == 'configmap "settings" not found'
        pod.objects.maps["settings"] = ConfigObject(data={"mode": "fast"})

        await pod.phase("Running")


async def test_files_come_from_objects_and_follow_them(
    tmp_path: Path, runtime: FakeRuntime
) -> None:
    objects = FixedObjects()
    objects.maps["settings"] = ConfigObject(data={"mode": "fast"})
    spec = manifest(
        container(volumeMounts=[{"name": "v", "mountPath": "/etc/app"}]),
        volumes=[{"name": "v", "configMap": {"name": "settings", "defaultMode": 0o640}}],
    )
    async with running(tmp_path, spec, runtime, objects) as pod:
        await pod.phase("Running")
        (mount,) = [
            one for one in runtime.named("app")[0].config.mounts if one.container_path == "/etc/app"
        ]
        file = Path(mount.host_path) / "mode"
        assert (file.read_text(), file.stat().st_mode & 0o777) == ("fast", 0o640)
        assert mount.readonly

        objects.maps["settings"] = ConfigObject(data={"mode": "slow"})

        await pod.until(lambda: file.read_text() == "slow")


async def test_a_failed_liveness_probe_starts_the_container_again(
    tmp_path: Path, runtime: FakeRuntime
) -> None:
    healthy = True
    runtime.execute = lambda _name, _command: 0 if healthy else 1
    probe = {"exec": {"command": ["check"]}, "periodSeconds": 0, "failureThreshold": 2}
    spec = manifest(container(livenessProbe=probe), restartPolicy="Always")
    async with running(tmp_path, spec, runtime) as pod:
        await pod.phase("Running")
        await pod.until(lambda: runtime.executed)
        healthy = False
        await pod.until(lambda: len(runtime.named("app")) == 2)

        assert runtime.named("app")[0].grace_s == 30
        await pod.until(lambda: pod.report()["restartCount"] == 1)


async def test_a_pod_is_ready_when_its_readiness_probe_succeeds(
    tmp_path: Path, runtime: FakeRuntime
) -> None:
    healthy = False
    runtime.execute = lambda _name, _command: 0 if healthy else 1
    probe = {"exec": {"command": ["check"]}, "periodSeconds": 0}
    async with running(tmp_path, manifest(container(readinessProbe=probe)), runtime) as pod:
        await pod.phase("Running")
        assert pod.condition("Ready") == ("False", "ContainersNotReady")

        healthy = True

        await pod.until(lambda: pod.condition("Ready") == ("True", ""))


async def test_a_new_worker_goes_on_with_what_runs(tmp_path: Path, runtime: FakeRuntime) -> None:
    async with running(tmp_path, manifest(container()), runtime) as pod:
        await pod.phase("Running")
        left = pod.server.pod
    started = len(runtime.containers)

    async with running(tmp_path, left, runtime) as pod:
        await pod.until(lambda: pod.server.history)
        assert len(runtime.containers) == started
        runtime.end("app", 0)
        await pod.phase("Succeeded")


async def test_a_pod_ends_at_its_deadline(tmp_path: Path, runtime: FakeRuntime) -> None:
    async with running(tmp_path, manifest(container(), activeDeadlineSeconds=5), runtime) as pod:
        await pod.phase("Running")

        pod.clock.ahead_s += 6

        await pod.phase("Failed")
        assert pod.status["reason"] == "DeadlineExceeded"
        assert runtime.running() == []


async def test_an_outage_of_the_api_server_stops_no_container(
    tmp_path: Path, runtime: FakeRuntime
) -> None:
    runtime.outcomes["app"] = []
    spec = manifest(container(), restartPolicy="Always")
    async with running(tmp_path, spec, runtime) as pod:
        await pod.phase("Running")
        pod.server.is_down = True
        runtime.end("app", 1)
        await pod.until(lambda: len(runtime.named("app")) == 2)

        pod.server.is_down = False

        await pod.until(lambda: pod.report()["restartCount"] == 1)


async def test_the_status_has_the_user_and_the_resources_of_containers(
    tmp_path: Path, runtime: FakeRuntime
) -> None:
    wanted = {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"memory": "1500M"}}
    spec = manifest(
        container(resources=wanted),
        initContainers=[container("first")],
        securityContext={"runAsUser": 1000, "runAsGroup": 1001, "supplementalGroups": [3000]},
    )
    runtime.outcomes["first"] = [0]
    user = {"linux": {"uid": 1000, "gid": 1001, "supplementalGroups": [3000]}}
    async with running(tmp_path, spec, runtime) as pod:
        await pod.phase("Running")

        found = pod.report()
        assert (found["user"], found["allocatedResources"]) == (user, wanted["requests"])
        # The runtime's own limit, as it runs.
        assert found["resources"] == {**wanted, "limits": {"memory": "1500000000"}}
        first = pod.report("first", "initContainerStatuses")
        assert (first["user"], first["resources"]) == (user, {})
        assert pod.status["allocatedResources"] == wanted["requests"]
        assert pod.status["resources"]["requests"] == wanted["requests"]

        runtime.end("app", 0)

        await pod.phase("Succeeded")
        assert (pod.report()["user"], pod.report()["resources"]) == (user, wanted)


async def test_the_user_of_a_container_that_is_gone_stays(
    tmp_path: Path, runtime: FakeRuntime
) -> None:
    spec = manifest(container(), securityContext={"runAsUser": 7})
    async with running(tmp_path, spec, runtime) as pod:
        await pod.phase("Running")
        runtime.end("app", 0)
        await pod.phase("Succeeded")
        written, user = pod.server.pod, pod.report()["user"]
    runtime.containers.clear()
    async with running(tmp_path, written, runtime) as pod:
        pod.delete()
        await pod.until(lambda: pod.server.is_deleted)

        assert pod.report()["user"] == user
        assert user["linux"]["uid"] == 7


async def test_a_pod_is_over_when_its_sandbox_has_ended(
    tmp_path: Path, runtime: FakeRuntime
) -> None:
    async with running(tmp_path, manifest(container()), runtime) as pod:
        await pod.phase("Running")
        runtime.end("app", 0)
        await pod.phase("Succeeded")

        over = [one for one in pod.server.history if one["phase"] == "Succeeded"]
        conditions = [
            condition["status"]
            for one in over
            for condition in one["conditions"]
            if condition["type"] == "PodReadyToStartContainers"
        ]
        assert set(conditions) == {"False"}


async def test_a_pod_that_makes_room_for_a_critical_one_is_disrupted(
    tmp_path: Path, runtime: FakeRuntime
) -> None:
    async with running(tmp_path, manifest(container()), runtime) as pod:
        await pod.phase("Running")

        pod.worker.preempt(PREEMPTED)

        await pod.phase("Failed")
        assert pod.status["reason"] == "Preempting"
        assert pod.condition("DisruptionTarget") == ("True", "TerminationByKubelet")


async def test_a_container_without_limits_has_those_of_its_pod(
    tmp_path: Path, runtime: FakeRuntime
) -> None:
    whole = {"limits": {"cpu": "500m", "memory": "1Gi"}}
    own = {"limits": {"cpu": "100m"}}
    spec = manifest(container(), container("own", resources=own), resources=whole)
    async with running(tmp_path, spec, runtime) as pod:
        await pod.phase("Running")

        found = {name: runtime.named(name)[0].config.linux.resources for name in ("app", "own")}
        assert {
            name: (one.cpu_quota, one.memory_limit_in_bytes) for name, one in found.items()
        } == {
            "app": (50_000, 1 << 30),
            "own": (10_000, 1 << 30),
        }


async def test_only_their_owner_enters_the_directories_of_a_pod(
    tmp_path: Path, runtime: FakeRuntime
) -> None:
    async with running(tmp_path, manifest(container()), runtime) as pod:
        await pod.phase("Running")

        top = tmp_path / "root" / "pods" / "uid-1"
        inner = ("volumes", "plugins", "containers", "containers/app")
        modes = {oct((top / one).stat().st_mode & 0o777) for one in ("", *inner)}
        assert modes == {oct(0o750)}
