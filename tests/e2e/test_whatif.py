"""`bindery whatif` against the cluster: each example then ends as its answer predicted.

All examples are asked about in one submission, and then created. kube-controller-manager serves
Jobs, Deployments and StatefulSets; JobSets and LeaderWorkerSets have their own controllers. For
the other kinds the tests create the pods, as `handmade` has them; the output lists who does what.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from bindery.api.configuration import GrouperConfiguration, GrouperExpectation
from bindery.grouper.ownerkinds import plural
from bindery.kube.objects.membership import Claims
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.resources import POD_GROUPS, PODS, QUEUES, Resource
from bindery.kube.objects.watched import Meta, Pod
from devcluster.components import Component, Components
from devcluster.install import Installation
from tests.administrator import Plain
from tests.commandline import CommandLine
from tests.definitions import install_files
from tests.e2e.handmade import Step, made
from tests.e2e.operators import JOBSET, LWS, running
from tests.e2e.playedoperators import controlled
from tests.e2e.support import Corner, scheduler_configuration, wait_for
from tests.e2e.traps import ready
from tests.readers import reader
from tests.required import lacking

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FOLDERS = (EXAMPLES, EXAMPLES / "workloads")
OWN_KINDS = (
    EXAMPLES / "workloads" / "own-kind" / "training.yaml",
    EXAMPLES / "stages" / "pipeline.yaml",
)
"""Their rows are given to the grouper alone: `whatif` reads them from its Lease."""
ROWS = tuple(sorted(EXAMPLES.rglob("rows.yaml")))
OWN_GROUPS = frozenset({"", "apps", "batch", "scheduling.bindery.dev"})
SERVED = frozenset({"JobSet", "LeaderWorkerSet"})
NODES, RACKS = 90, 6
WAIT_S, LOOK_S = 120.0, 0.5
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet", True, Plain)

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.usefixtures("operators", "definitions", "grouper", "scheduler", "binder", "nodes"),
]


class Fate(NamedTuple):
    """What becomes of a gang."""

    runs: bool
    pods: int
    """How many have a node."""
    queue: str


def documents() -> list[dict[str, Any]]:
    """Return all workloads and PodGroups of the examples."""
    files = [file for folder in FOLDERS for file in sorted(folder.glob("*.yaml"))]
    files += OWN_KINDS
    found = [item for file in files for item in yaml.safe_load_all(file.read_text())]
    return [item for item in found if item["kind"] != "Queue"]


def resource(body: Mapping[str, Any]) -> Resource[Plain]:
    group, _, version = str(body["apiVersion"]).rpartition("/")
    return Resource(group, version, plural(body["kind"]), body["kind"], True, Plain)


def foreign_kinds() -> dict[str, Resource[Plain]]:
    """Return the kinds of the examples, and of what is made of them, without a controller here."""
    bodies = documents()
    steps = [step for body in bodies for step in made(body) or ()]
    bodies += [child for step in steps for _, child in step.objects]
    kinds = {resource(body).kind + resource(body).group: resource(body) for body in bodies}
    found = [kind for kind in kinds.values() if kind.group not in OWN_GROUPS]
    return {f"{kind.plural}.{kind.group}": kind for kind in found if kind.kind not in SERVED}


@pytest.fixture(scope="module")
def pool() -> str:
    """The default pool: the examples name none."""
    return ""


@pytest.fixture(scope="module")
def operators(installation: Installation) -> Iterator[None]:
    if installation.control_plane.is_shared:
        lacking("this cluster's API server cannot call webhooks on this machine")
    with running(installation.control_plane, [JOBSET, LWS]):
        yield


@pytest.fixture(scope="module")
def definitions(
    installation: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Definitions that accept anything, of the kinds without a controller here."""
    plane, kinds = installation.control_plane, foreign_kinds()
    there = plane.kubectl("get", "crd", "--output=name").split()
    if others := [name for name in there if name.partition("/")[2] in kinds]:
        plane.kubectl("delete", *others)
    file = tmp_path_factory.mktemp("crds") / "crds.yaml"
    file.write_text(yaml.safe_dump_all([definition(name, kind) for name, kind in kinds.items()]))
    install_files(plane, [file])
    rights = file.with_name("rights.yaml")
    rights.write_text(yaml.safe_dump_all(own_rights()))
    plane.kubectl("apply", "--server-side", f"--filename={rights}")
    yield
    plane.kubectl("delete", f"--filename={file}", f"--filename={rights}")


def definition(name: str, kind: Resource[Plain]) -> dict[str, Any]:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": kind.version, "served": True, "storage": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        # Groups below k8s.io demand it.
        "metadata": {"name": name, "annotations": {"api-approved.kubernetes.io": "unapproved"}},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": {"kind": kind.kind, "plural": kind.plural},
            "versions": [{**version, "schema": {"openAPIV3Schema": anything}}],
        },
    }


def own_rights() -> list[dict[str, Any]]:
    """Return the role for kinds with rows of their own: the value grouper.kinds of the chart."""
    rule = {"apiGroups": ["example.com"], "resources": ["*"], "verbs": ["get", "list", "watch"]}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "own-kinds"}
    account = {"kind": "ServiceAccount", "name": "bindery-grouper", "namespace": "bindery-system"}
    version, metadata = "rbac.authorization.k8s.io/v1", {"name": "own-kinds"}
    return [
        {"apiVersion": version, "kind": "ClusterRole", "metadata": metadata, "rules": [rule]},
        {
            "apiVersion": version,
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": role,
            "subjects": [account],
        },
    ]


@pytest.fixture(scope="module")
def grouper(module_components: Components, installation: Installation) -> Component:
    configuration = installation.grouper_configuration.model_copy(
        update={"row_files": tuple(map(str, ROWS))}
    )
    assert isinstance(configuration, GrouperConfiguration)
    return module_components.start_grouper(configuration).wait_ready()


@pytest.fixture(scope="module")
def scheduler(module_components: Components, pool: str) -> Component:
    configuration = scheduler_configuration(pool).model_copy(
        update={"grouper": GrouperExpectation(wait_for_groups=True)}
    )
    return module_components.start_scheduler(configuration).wait_ready()


@pytest.fixture
async def nodes(corner: Corner, components: Components) -> None:
    options = [f"--racks={RACKS}", f"--name-prefix={corner.namespace}-", "--remove-on-exit"]
    await ready(components.start_hollow_nodes(NODES, options))


@pytest.fixture
async def queues(corner: Corner, tmp_path: Path) -> Path:
    """The queues of the examples; `research` has room for all of them at once."""
    bodies = list(yaml.safe_load_all((EXAMPLES / "queues.yaml").read_text()))
    for body in bodies:
        if body["metadata"]["name"] == "research":
            body["spec"]["resources"]["gpu"] |= {"limit": 2000}
        await corner.client.create(QUEUES, body)
    file = tmp_path / "queues.yaml"
    file.write_text(yaml.safe_dump_all(bodies))
    return file


@pytest.fixture
def asker(installation: Installation) -> Iterator[Path]:
    """The kubeconfig of a user with the chart's role for readers alone."""
    with reader(installation.control_plane) as kubeconfig:
        yield kubeconfig


@dataclass
class Played:
    """An example in the cluster, with what the tests create for its controller."""

    corner: Corner
    objects: list[tuple[dict[str, Any], Plain]]
    """The example and all that was made of it, in order."""
    steps: list[Step]
    """What comes later."""

    @classmethod
    async def begin(cls, corner: Corner, body: dict[str, Any]) -> "Played":
        """Create an example, and the first step of what its controller makes of it."""
        played = cls(corner, [], made(body) or [])
        await played._create(body)
        await played.go_on()
        return played

    async def go_on(self) -> None:
        """Create the next step, if there is one."""
        for owner, body in self.steps.pop(0).objects if self.steps else ():
            above, found = self.objects[owner + 1]
            await self._create(controlled(body, resource(above), found))

    async def finish(self) -> None:
        """Create the later steps, each when the pods of the earlier ones are bound."""
        while self.steps:
            names = [found.metadata.name for body, found in self.objects if body["kind"] == "Pod"]
            await wait_for(lambda: self._are_bound(names), f"{names} are bound", WAIT_S)  # noqa: B023
            await self.go_on()

    async def _create(self, body: dict[str, Any]) -> None:
        client, namespace = self.corner.client, self.corner.namespace
        self.objects.append((body, await client.create(resource(body), body, namespace)))

    async def _are_bound(self, names: list[str]) -> bool:
        client, namespace = self.corner.client, self.corner.namespace
        pods = [await client.get(PODS, name, namespace) for name in names]
        return all(pod.spec.node_name for pod in pods)


def foretold(command_line: CommandLine, kubeconfig: Path, arguments: list[str]) -> dict[str, Fate]:
    """Return the fate of each gang by `bindery whatif`; keys: names of PodGroups without UID."""
    done = command_line("--kubeconfig", str(kubeconfig), "whatif", *arguments, "-o", "json")
    assert done.returncode == 1, f"some examples wait: {done.stderr}"
    assert "warning" not in done.stderr
    answer = json.loads(done.stdout)
    assert answer["settled"]
    assert answer["evictions"] == []
    return {
        each["job"]["name"]: Fate(each["runs"], len(each["pods"]), each["queue"])
        for each in answer["jobs"]
    }


async def live(corner: Corner) -> dict[str, Fate]:
    """Return what has become of each gang."""
    client, namespace = corner.client, corner.namespace
    groups: list[PodGroup] = await client.list(POD_GROUPS, namespace=namespace)
    pods: list[Pod] = await client.list(PODS, namespace=namespace)
    sets = await client.list(REPLICA_SETS, namespace=namespace)
    deployments = {each.metadata.uid: each.metadata.owner_references[0].name for each in sets}
    claims = Claims(groups)
    members: dict[str, list[Pod]] = {}
    for pod in pods:
        members.setdefault(claims.of(pod).group, []).append(pod)
    assert "" not in members, "every pod is in a gang"
    found: dict[str, Fate] = {}
    for group in groups:
        meta, of_group = group.metadata, members.get(group.metadata.name, [])
        bound = sum(bool(pod.spec.node_name) for pod in of_group)
        condition = next((c for c in group.status.conditions or () if c.type == "Scheduled"), None)
        runs = condition is not None and condition.status == "True"
        runs = runs and (group.spec.min_member > 0 or bound == len(of_group))
        found[plain_name(meta, deployments)] = Fate(runs, bound, group.spec.queue)
    return found


async def becomes(corner: Corner, said: dict[str, Fate]) -> None:
    """Wait until the gangs are as `said`; on failure show what differs."""
    for _ in range(int(WAIT_S / LOOK_S)):
        if await live(corner) == said:
            return
        await asyncio.sleep(LOOK_S)
    assert await live(corner) == said


def plain_name(meta: Meta, deployments: Mapping[str, str]) -> str:
    """Return the name of a PodGroup without the parts that are generated at its creation."""
    if not meta.owner_references:
        return meta.name
    owner = meta.owner_references[0]
    if owner.uid in deployments:
        return f"replicaset-{deployments[owner.uid]}"
    return meta.name.replace(f"-{owner.uid[:8]}", "")


async def test_every_example_ends_as_whatif_predicted(
    corner: Corner, command_line: CommandLine, asker: Path, queues: Path
) -> None:
    asked = [text for path in (*FOLDERS, *OWN_KINDS) for text in ("-f", str(path))]
    arguments = [*asked, "-f", str(queues), "-n", corner.namespace]
    said = await asyncio.to_thread(foretold, command_line, asker, arguments)
    examples = documents()
    print_controllers(examples)

    played = [await Played.begin(corner, body) for body in examples]
    await asyncio.gather(*(each.finish() for each in played))

    await becomes(corner, said)
    workloads = [e for e in examples if e["kind"] not in ("PodGroup", "TrainingRuntime")]
    assert len(said) == len(workloads) + 1, "the LeaderWorkerSet is two gangs"
    assert sum(fate.pods for fate in said.values()) > 150
    assert {name for name, fate in said.items() if not fate.runs} == {"never-fits", "over-limit"}


def print_controllers(examples: list[dict[str, Any]]) -> None:
    """Print who creates the pods of each example."""
    for body in examples:
        if body["kind"] not in ("PodGroup", "TrainingRuntime"):
            by = "its own controller" if made(body) is None else "the test"
            print(f"{body['kind']}/{body['metadata']['name']}: {by}")
