"""The commands of the pages for users and administrators work as written.

Pages that lead from nothing to something are run whole, block by block; of the others, the kubectl
commands are.
"""

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.errors import ControlPlaneError
from devcluster.install import Installation
from devcluster.plane import ControlPlane
from tests.e2e import pageworlds
from tests.e2e.pageblocks import run_page

pytestmark = pytest.mark.e2e

DOCS = Path(__file__).resolve().parents[2] / "docs"
NAME = "docs-commands"
OBJECTS = f"""
apiVersion: scheduling.bindery.dev/v1alpha1
kind: Queue
metadata: {{name: {NAME}}}
spec: {{parent: {NAME}-parent, resources: {{gpu: {{quota: 8}}}}}}
---
apiVersion: scheduling.bindery.dev/v1alpha1
kind: Queue
metadata: {{name: {NAME}-parent}}
---
apiVersion: scheduling.bindery.dev/v1alpha1
kind: Topology
metadata: {{name: {NAME}}}
spec: {{levels: [{{nodeLabel: example.com/rack}}, {{nodeLabel: kubernetes.io/hostname}}]}}
---
apiVersion: scheduling.bindery.dev/v1alpha1
kind: HyperNode
metadata: {{name: {NAME}}}
spec: {{tier: 1, members: [{{type: Node, regex: "^{NAME}$"}}]}}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {{name: {NAME}}}
value: 7
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: bindery-usage, namespace: kube-system}}
data: {{record: "{{}}"}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: bindery-history, namespace: kube-system}}
data: {{record: ""}}
---
apiVersion: v1
kind: Node
metadata: {{name: {NAME}, labels: {{example.com/rack: one}}}}
"""
IN_NAMESPACE = f"""
apiVersion: scheduling.bindery.dev/v1alpha1
kind: PodGroup
metadata: {{name: {NAME}}}
spec: {{minMember: 2, queue: {NAME}}}
---
apiVersion: scheduling.bindery.dev/v1alpha1
kind: PodGroup
metadata: {{name: {NAME}-made, labels: {{scheduling.bindery.dev/made-by: bindery-grouper}}}}
spec: {{minMember: 2, queue: {NAME}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: {NAME}}}
spec: {{schedulerName: bindery, containers: [{{name: main, image: busybox}}]}}
"""
ELSEWHERE = ("logs", "port-forward", "rollout", "delete")
"""These need kubelets, Deployments, or are for other clusters."""


@pytest.fixture
def saved(
    control_plane: ControlPlane,
    installation: Installation,  # brings the kinds
    namespace: str,
) -> Iterator[None]:
    """One object of each kind that is worth keeping."""
    control_plane.kubectl("apply", "--filename=-", stdin=OBJECTS)
    control_plane.kubectl("apply", f"--namespace={namespace}", "--filename=-", stdin=IN_NAMESPACE)
    yield
    control_plane.kubectl("delete", "--ignore-not-found", "--filename=-", stdin=OBJECTS)


@pytest.fixture
def environment(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> dict[str, str]:
    """As of a user whose kubectl has the administrator's context and the test's namespace."""
    own = tmp_path / "kubeconfig"
    own.write_bytes(control_plane.admin_kubeconfig.read_bytes())
    context = f"--kubeconfig={own}"
    control_plane.run(
        [str(control_plane.kubectl_path), context, "config", "set-context", "--current",
         f"--namespace={namespace}"]
    )  # fmt: skip
    path = f"{control_plane.kubectl_path.parent}:{os.environ['PATH']}"
    return {**os.environ, "KUBECONFIG": str(own), "PATH": path}


def section(page: str, title: str) -> str:
    """Return the text of the section `title` of a page."""
    text = (DOCS / page).read_text(encoding="utf-8")
    _, _, rest = text.partition(f"\n## {title}\n")
    assert rest, f"{page} has no section {title}"
    return rest.partition("\n## ")[0]


def indented(text: str) -> list[str]:
    """Return the commands in the blocks of `text`."""
    return re.findall(r"^    (\S.*)$", text, re.MULTILINE)


def run(command: str, directory: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def kinds_in(path: Path) -> set[str]:
    """Return the kinds of the objects in a file of lists or single objects."""
    documents = yaml.safe_load_all(path.read_text(encoding="utf-8"))
    items = [item for each in documents for item in each.get("items", [each])]
    return {item["kind"] for item in items}


def test_the_backup_contains_every_kind_of_its_table_and_can_be_restored(
    saved: None,
    control_plane: ControlPlane,
    environment: dict[str, str],
    namespace: str,
    tmp_path: Path,
) -> None:
    text = section("operations.md", "Backup")
    commands = indented(text)
    for command in commands:
        if not command.startswith("helm "):  # there is no release; the chart is rendered here
            run(command, tmp_path, environment)

    rows = [line.split("|") for line in text.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 6
    for _, objects, _, files, _ in rows:
        (file,) = re.findall(r"`(\w+\.\w+)`", files)
        assert any(f"> {file}" in command for command in commands), file
        kinds = re.findall(r"\b(Queue|Topolog|HyperNode|PriorityClass|PodGroup|ConfigMap)", objects)
        if file == "values.yaml":
            continue
        if file == "labels.txt":
            assert "example.com/rack=one" in (tmp_path / file).read_text(encoding="utf-8")
            continue
        found = kinds_in(tmp_path / file)
        assert kinds
        assert all(any(kind.startswith(name) for kind in found) for name in kinds), (file, found)

    control_plane.kubectl("delete", "--filename=-", stdin=OBJECTS)
    control_plane.kubectl("delete", "podgroups.scheduling.bindery.dev", "--all", "-n", namespace)
    for command in indented(section("operations.md", "Restore")):
        if command.startswith("kubectl create"):
            # What others have made meanwhile exists already.
            subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, check=False)
    listed = "queues.scheduling.bindery.dev,topologies,hypernodes,priorityclasses"
    restored = control_plane.kubectl("get", listed, "--output=name")
    assert len([line for line in restored.splitlines() if line.endswith(f"/{NAME}")]) == 4
    groups = control_plane.kubectl(
        "get", "podgroups.scheduling.bindery.dev", "-n", namespace, "--output=name"
    )
    assert groups.split() == [f"podgroup.scheduling.bindery.dev/{NAME}"]


def commands_of(page: str) -> list[str]:
    """Return the kubectl commands of a page, in blocks and in the text."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = [*indented(text), *re.findall(r"`(kubectl [^`]+)`", text)]
    return [
        command.replace("NAME", NAME)
        for command in found
        if command.startswith("kubectl ") and not any(word in command for word in ELSEWHERE)
    ]


@pytest.mark.parametrize("page", ["troubleshooting.md", "status.md"])
def test_all_commands_of_a_page_succeed(
    page: str, saved: None, environment: dict[str, str], tmp_path: Path
) -> None:
    commands = commands_of(page)
    assert len(commands) >= 2
    for command in commands:
        run(command, tmp_path, environment)


# -- pages that are run whole --------------------------------------------------------------------

MIGRATED = DOCS.parent / "tests" / "cli" / "migrate"


@pytest.fixture(scope="module")
def page_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane for the pages alone, as their queues have no node pool."""
    with pageworlds.installed_plane(tmp_path_factory.mktemp("pages")) as plane:
        yield plane


@pytest.fixture
def page_cluster(page_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The same, emptied after the page."""
    yield page_plane
    page_plane.kubectl("delete", "jobs,podgroups.scheduling.bindery.dev,pods", "--all", "-A")
    queues = "queues.scheduling.bindery.dev"
    while page_plane.kubectl("get", queues, "--output=name"):
        with contextlib.suppress(ControlPlaneError):  # those below others go first
            page_plane.kubectl("delete", queues, "--all")


def run_whole(page: str, plane: ControlPlane, directory: Path) -> int:
    return run_page(DOCS / page, directory, pageworlds.environment(plane, directory, "default"))


@pytest.mark.parametrize("page", ["first-gang.md", "queues-for-a-company.md"])
def test_a_page_leads_where_it_promises(
    page: str, page_cluster: ControlPlane, tmp_path: Path
) -> None:
    assert run_whole(page, page_cluster, tmp_path) >= 8


def test_the_installation_is_made_upgraded_and_removed_as_written(tmp_path: Path) -> None:
    with pageworlds.bare_plane(tmp_path / "plane") as plane:
        assert run_whole("installation.md", plane, tmp_path) >= 8
        assert "bindery" not in plane.kubectl("get", "crds", "--output=name")


def without_gangs(text: str) -> list[dict[str, Any]]:
    """Return the objects in `text` without PodGroups: the owners of some are not in the cluster."""
    return [each for each in yaml.safe_load_all(text) if each and each["kind"] != "PodGroup"]


@pytest.mark.parametrize("peer", ["kai", "volcano", "kueue"])
def test_the_objects_of_another_scheduler_are_migrated_as_written(
    peer: str, page_cluster: ControlPlane, tmp_path: Path
) -> None:
    pageworlds.create_foreign(page_cluster, MIGRATED / f"{peer}.yaml", tmp_path)

    assert run_whole(f"migrate-from-{peer}.md", page_cluster, tmp_path) >= 2

    written = (tmp_path / "bindery.yaml").read_text(encoding="utf-8")
    expected = (DOCS.parent / "tests/cli/golden" / f"migrate-{peer}.yaml").read_text("utf-8")
    assert without_gangs(written) == without_gangs(expected)
    ready = ("--for=condition=Ready", "--timeout=60s")
    page_cluster.kubectl("wait", "queues.scheduling.bindery.dev", "--all", *ready)


def test_a_namespace_moves_from_the_default_scheduler_as_written(
    page_cluster: ControlPlane, tmp_path: Path
) -> None:
    page_cluster.kubectl("create", "namespace", "team-x")

    assert run_whole("migrate-from-kubernetes.md", page_cluster, tmp_path) >= 3
