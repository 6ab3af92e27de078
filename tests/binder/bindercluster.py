"""Pods, nodes and BindRequests made by hand on the real API server, and a plugin with gates."""

import asyncio
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bindery.api.configuration import BinderConfiguration, LeaderElection, PluginConfiguration
from bindery.api.names import FENCE_LABEL, NODE_POOL_LABEL, STATEMENT_LABEL
from bindery.kube.client import Client
from bindery.kube.objects.resources import BIND_REQUESTS, NODES, POD_GROUPS, PODS
from bindery.kube.objects.storage import CLAIMS, STORAGE_CLASSES, VOLUMES
from devcluster.components import Component
from devcluster.plane import ControlPlane
from tests.administrator import Administrator, Plain, read_as

API_VERSION = "scheduling.bindery.dev/v1alpha1"
_OF_REQUEST = {"backoffLimit", "fencingToken", "withdrawn", "summary"}
STORAGE = (CLAIMS, VOLUMES, STORAGE_CLASSES)
ALONE = LeaderElection(enabled=False)
KINDS = {
    resource.kind: replace(read_as(resource, Plain), rescue=None)
    for resource in (PODS, NODES, POD_GROUPS, BIND_REQUESTS, *STORAGE)
}


@dataclass
class Cluster:
    """One namespace with nodes of its own. All waits have deadlines."""

    plane: ControlPlane
    administrator: Administrator
    namespace: str

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.plane.kubectl(*arguments, f"--namespace={self.namespace}", stdin=stdin)

    def node(self, number: int) -> str:
        return f"{self.namespace}-node-{number}"

    def create(self, *objects: dict[str, Any]) -> None:
        """Create all of `objects` at once."""

        async def create(client: Client) -> None:
            for batch in (objects[i : i + 20] for i in range(0, len(objects), 20)):
                await asyncio.gather(
                    *(client.create(KINDS[it["kind"]], it, self._place(it["kind"])) for it in batch)
                )

        self.administrator(create)

    def add_nodes(self, count: int) -> None:
        self.create(
            *(
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {"name": self.node(n), "labels": {"made-by": self.namespace}},
                }
                for n in range(count)
            )
        )

    def remove_nodes(self) -> None:
        async def remove(client: Client) -> None:
            for node in await client.list(NODES, label_selector=f"made-by={self.namespace}"):
                await client.delete(NODES, node.metadata.name)

        self.administrator(remove)

    def add_pods(self, name: str, count: int) -> list[dict[str, str]]:
        """Create pods without a scheduler; return their bindings, pod i to node i."""
        self.create(*(pod(f"{name}-{number}") for number in range(count)))
        return self.bindings(name, count)

    def bindings(self, name: str, count: int) -> list[dict[str, str]]:
        """Return the bindings of existing pods, pod i to node i."""
        uids = {item.metadata.name: item.metadata.uid for item in self.all("Pod")}
        return [
            {"podName": pod, "podUID": uids[pod], "selectedNode": self.node(number)}
            for number, pod in enumerate(f"{name}-{n}" for n in range(count))
        ]

    def binding(self, name: str, node: str) -> dict[str, str]:
        return {"podName": name, "podUID": self.uid("Pod", name), "selectedNode": node}

    def get(self, kind: str, name: str) -> Plain:
        place = self._place(kind)
        return self.administrator(lambda client: client.get(KINDS[kind], name, place))

    def all(self, kind: str) -> list[Plain]:
        place = self._place(kind)
        return self.administrator(lambda client: client.list(KINDS[kind], namespace=place))

    def uid(self, kind: str, name: str) -> str:
        return self.get(kind, name).metadata.uid

    def request(
        self, name: str, bindings: Sequence[Mapping[str, Any]], **spec: Any
    ) -> dict[str, Any]:
        """Return a BindRequest with one Statement, in a node pool of this namespace's own.

        `spec`: fields of the request or of its Statement.
        """
        whole = {key: spec.pop(key) for key in _OF_REQUEST & spec.keys()}
        statement = {"id": name, **spec, "pods": list(bindings)}
        labels = {NODE_POOL_LABEL: self.namespace, STATEMENT_LABEL: name}
        return {
            "apiVersion": API_VERSION,
            "kind": "BindRequest",
            "metadata": {"name": name, "labels": labels},
            "spec": {"statements": [statement], **whole},
        }

    def shared(
        self,
        name: str,
        statements: Mapping[str, Sequence[Mapping[str, Any]]],
        **fields: dict[str, Any],
    ) -> dict[str, Any]:
        """Return a BindRequest with several gangs.

        Args:
            name: of the request.
            statements: id of a Statement, and name of its gang -> the bindings of its pods.
            fields: id of a Statement -> more fields of it.
        """
        found = self.request(name, [])
        del found["metadata"]["labels"][STATEMENT_LABEL]
        found["spec"] = {
            "statements": [
                {"id": each, "podGroup": {"name": each, "uid": each}, "pods": list(pods)}
                | fields.get(each, {})
                for each, pods in statements.items()
            ]
        }
        return found

    def withdraw(self, name: str, *statements: str) -> None:
        """Withdraw Statements of a request, as the scheduler does."""
        patch = {"spec": {"withdrawn": list(statements)}}
        self.administrator(
            lambda client: client.patch(BIND_REQUESTS, name, patch, namespace=self.namespace)
        )

    def ends(self, name: str) -> dict[str, tuple[str, str]]:
        """Return Statement -> phase and reason, for each Statement with an entry in the status."""
        statements = self.status(name).get("statements", ())
        return {each["id"]: (each["phase"], each.get("reason", "")) for each in statements}

    def wait_for_end(self, name: str, statement: str, timeout_s: int = 30) -> str:
        """Wait until a Statement of a request has ended; return its phase and reason."""

        def end(request: Plain) -> str:
            for each in (request.status or {}).get("statements", ()):
                if each["id"] == statement and each["phase"] in ("Succeeded", "Failed"):
                    return f"{each['phase']}/{each['reason']}"
            return ""

        found = self._wait("BindRequest", name, lambda it: bool(end(it)), "end", timeout_s)
        return end(found)

    def wait_gone(self, kind: str, name: str, timeout_s: int = 30) -> None:
        self.kubectl("wait", f"{kind}/{name}", "--for=delete", f"--timeout={timeout_s}s")

    def announcement(self, name: str, **spec: Any) -> dict[str, Any]:
        """Return the announcement of a leader of this namespace's node pool."""
        labels = {NODE_POOL_LABEL: self.namespace, FENCE_LABEL: "true"}
        return {
            "apiVersion": API_VERSION,
            "kind": "BindRequest",
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
        }

    def wait_for(self, name: str, phase: str, timeout_s: int = 30) -> dict[str, Any]:
        """Wait until the request is in `phase`; return its status."""

        def has_come(request: Plain) -> bool:
            return bool((request.status or {}).get("phase") == phase)

        found = self._wait("BindRequest", name, has_come, f"phase {phase}", timeout_s)
        status: dict[str, Any] = found.status
        return status

    def only(self, name: str) -> dict[str, Any]:
        """Return the status of the Statement that is alone in a request."""
        (status,) = self.status(name)["statements"]
        found: dict[str, Any] = status
        return found

    def status(self, name: str) -> dict[str, Any]:
        status: dict[str, Any] = self.get("BindRequest", name).status or {}
        return status

    def nodes_of(self, prefix: str) -> list[str]:
        """Return the nodes of the pods whose names begin so; "" for one that is not bound."""
        return [
            item.spec.get("nodeName", "")
            for item in self.all("Pod")
            if item.metadata.name.startswith(prefix)
        ]

    def _place(self, kind: str) -> str:
        return self.namespace if KINDS[kind].namespaced else ""

    def wait_bound(self, pod: str, timeout_s: int = 30) -> None:
        self._wait("Pod", pod, lambda found: "nodeName" in found.spec, "a node", timeout_s)

    def _wait(
        self, kind: str, name: str, check: Callable[[Plain], bool], what: str, timeout_s: int
    ) -> Plain:
        """Wait until `check` holds for the object; return it."""

        async def wait(client: Client) -> Plain:
            deadline = time.monotonic() + timeout_s
            while True:
                found = await client.get(KINDS[kind], name, self._place(kind))
                if check(found):
                    return found
                if time.monotonic() > deadline:
                    raise AssertionError(f"{kind} {name} has no {what}: {found.status}")
                await asyncio.sleep(0.05)

        return self.administrator(wait)

    def wait_event(self, reason: str, regarding: str) -> str:
        """Wait for an event; return its note."""
        fields = f"reason={reason},involvedObject.name={regarding}"
        self.kubectl(
            "wait", "events", f"--field-selector={fields}", "--for=create", "--timeout=30s"
        )
        return self.kubectl(
            "get", "events", f"--field-selector={fields}", "--output=jsonpath={.items[0].message}"
        )


def pod(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "by-hand",
            "containers": [{"name": "main", "image": "none"}],
            "terminationGracePeriodSeconds": 0,
        },
    }


@dataclass
class Gate:
    """A plugin in a package of its own, as a third party would install it.

    It leaves a file for each pod it has prepared, and stands still at a step of a pod as long as
    the test holds it there.
    """

    directory: Path

    def install(self) -> Path:
        """Write the package; return the directory that belongs on PYTHONPATH."""
        site = self.directory / "site"
        information = site / "gate-1.dist-info"
        information.mkdir(parents=True)
        (information / "METADATA").write_text("Metadata-Version: 2.1\nName: gate\nVersion: 1\n")
        (information / "entry_points.txt").write_text(
            "[bindery.binder_plugins]\ngate = gateplugin:Gate\n"
        )
        (site / "gateplugin.py").write_text(_PLUGIN)
        (self.directory / "gates").mkdir()
        return site

    def configuration(self, **settings: Any) -> BinderConfiguration:
        arguments = {"directory": str(self.directory / "gates")}
        return BinderConfiguration(
            plugins=(PluginConfiguration(name="gate", arguments=arguments),),
            leader_election=ALONE,
            **settings,
        )

    def hold(self, step: str, pod_name: str) -> None:
        self._file("hold", step, pod_name).touch()

    def let_go(self, step: str, pod_name: str) -> None:
        self._file("hold", step, pod_name).unlink()

    def refuse(self, pod_name: str) -> None:
        """Let PreBind of the pod fail from now on; trying again may help."""
        self._file("refuse", "pre_bind", pod_name).touch()

    def wait_at(self, binder: Component, step: str, pod_name: str) -> None:
        """Wait until the plugin has come to the step of the pod, now or earlier."""
        at = self._file("at", step, pod_name)
        binder.process.wait_until(at.exists, f"{step} of {pod_name}", 20)

    @property
    def prepared(self) -> set[str]:
        """The pods for which the plugin keeps something."""
        return {path.name for path in (self.directory / "gates").glob("prepared-*")}

    def _file(self, kind: str, step: str, pod_name: str) -> Path:
        return self.directory / "gates" / f"{kind}-{step}-{pod_name}"


_PLUGIN = textwrap.dedent('''
    """A binder plugin that stands still where it is told to."""

    import asyncio
    from pathlib import Path
    from typing import ClassVar

    from pydantic import BaseModel, ConfigDict

    from bindery.binder.plugins.interface import BindContext, PluginError, PodManifest


    class Arguments(BaseModel):
        model_config = ConfigDict(extra="forbid")
        directory: Path


    class Gate:
        name: ClassVar[str] = "gate"
        arguments: ClassVar[type[BaseModel]] = Arguments

        def __init__(self, arguments: Arguments) -> None:
            self.directory = arguments.directory

        def validate(self, pod: PodManifest) -> list[str]:
            return []

        def mutate(self, pod: PodManifest) -> PodManifest:
            return pod

        async def pre_bind(self, context: BindContext) -> None:
            (self.directory / f"prepared-{context.pod.name}").touch()
            await self.pass_gate("pre_bind", context)
            if (self.directory / f"refuse-pre_bind-{context.pod.name}").exists():
                raise PluginError("not now")

        async def post_bind(self, context: BindContext) -> None:
            await self.pass_gate("post_bind", context)

        async def rollback(self, context: BindContext) -> None:
            (self.directory / f"prepared-{context.pod.name}").unlink(missing_ok=True)
            await self.pass_gate("rollback", context)

        async def pass_gate(self, step: str, context: BindContext) -> None:
            (self.directory / f"at-{step}-{context.pod.name}").touch()
            while (self.directory / f"hold-{step}-{context.pod.name}").exists():
                await asyncio.sleep(0.02)
''')
