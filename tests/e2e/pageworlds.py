"""Control planes on which the pages of docs/ are run, and the objects that a page presupposes."""

import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from devcluster import find
from devcluster.components import Components
from devcluster.install import install
from devcluster.plane import ControlPlane
from devcluster.ports import free_port
from devcluster.stack import with_webhook
from tests.definitions import install_files

_NODES = 4
"""Of eight GPUs each."""


@contextmanager
def bare_plane(state_dir: Path) -> Iterator[ControlPlane]:
    """A control plane of its own without anything of Bindery."""
    options = find.Options(state_dir=state_dir, node_grace_s=24 * 3600)
    with find.local(options, print) as plane:
        yield plane


@contextmanager
def installed_plane(state_dir: Path) -> Iterator[ControlPlane]:
    """A control plane with all components as processes, and four hollow nodes."""
    with (
        bare_plane(state_dir) as plane,
        Components(install(plane, with_webhook(free_port()))) as components,
    ):
        components.start_hollow_nodes(_NODES, ["--remove-on-exit"])
        components.start_webhook()
        components.start_binder()
        components.start_grouper()
        components.start_scheduler()
        for component in components.started:
            component.wait_ready()
        yield plane


def environment(plane: ControlPlane, directory: Path, namespace: str) -> dict[str, str]:
    """Return the variables of a user with a kubeconfig of its own, kubectl, helm and bindery."""
    own = directory / "kubeconfig"
    own.write_bytes(plane.admin_kubeconfig.read_bytes())
    plane.run(
        [str(plane.kubectl_path), f"--kubeconfig={own}", "config", "set-context", "--current",
         f"--namespace={namespace}"]
    )  # fmt: skip
    programs = (Path(sys.executable).parent, plane.kubectl_path.parent, plane.helm_path.parent)
    path = ":".join([*map(str, programs), os.environ["PATH"]])
    return {"KUBECONFIG": str(own), "PATH": path, "HOME": str(directory), "COLUMNS": "200"}


def create_foreign(plane: ControlPlane, file: Path, directory: Path) -> None:
    """Install the kinds of the objects in `file`, which take anything, and create the objects."""
    objects = _objects(file)
    kinds: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for each in objects:
        kinds[each["apiVersion"].partition("/")[0], each["kind"]].append(each)
    definitions = directory / "foreign.yaml"
    definitions.write_text(
        yaml.safe_dump_all(_definition(*kind, group) for kind, group in kinds.items())
    )
    install_files(plane, [definitions])
    for namespace in sorted({each["metadata"].get("namespace", "default") for each in objects}):
        if namespace != "default":
            namespaced = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            plane.kubectl("apply", "--filename=-", stdin=yaml.safe_dump(namespaced))
    for each in objects:
        # Controllers of the other scheduler are not here, and owners would be collected.
        each["metadata"] = {
            key: each["metadata"][key]
            for key in ("name", "namespace", "labels", "annotations")
            if key in each["metadata"]
        }
    plane.kubectl("apply", "--filename=-", stdin=yaml.safe_dump_all(objects))


def _objects(file: Path) -> list[dict[str, Any]]:
    """Return the objects of kinds that no API server has by itself."""
    documents = yaml.safe_load_all(file.read_text(encoding="utf-8"))
    found = [item for each in documents for item in each.get("items", [each])]
    return [each for each in found if "." in each["apiVersion"]]


def _definition(group: str, kind: str, objects: list[dict[str, Any]]) -> dict[str, Any]:
    singular = kind.lower()
    endings = {"topology": "topologies", "workloadpriorityclass": "workloadpriorityclasses"}
    plural = endings.get(singular, f"{singular}s")
    versions = sorted({each["apiVersion"].partition("/")[2] for each in objects})
    is_namespaced = any("namespace" in each["metadata"] for each in objects)
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "annotations": _APPROVED},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural, "singular": singular},
            "scope": "Namespaced" if is_namespaced else "Cluster",
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": version == versions[-1],
                    "schema": {"openAPIV3Schema": schema},
                }
                for version in versions
            ],
        },
    }


_APPROVED = {"api-approved.kubernetes.io": "unapproved, for a test"}
"""Kinds of groups below x-k8s.io need a word of approval."""
