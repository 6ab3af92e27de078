"""Applies the chart's resources to a control plane, and makes a kubeconfig for each component.

Called by the demo, the tests' fixtures and the benchmarks; then `components` starts the processes.
helm renders the chart, so the tests cover what users install, except the Deployments: the
components run on this machine. Invariant: a component has only the rights of its ServiceAccount, so
a permission missing in the chart fails here.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from bindery.api.configuration import (
    BinderConfiguration,
    GrouperConfiguration,
    SchedulerConfiguration,
)
from devcluster import checkout, kubeconfig
from devcluster.errors import ControlPlaneError
from devcluster.plane import ControlPlane

NAMESPACE: Final = "bindery-system"
RELEASE: Final = "bindery"
COMPONENTS: Final = ("scheduler", "binder", "grouper", "nodeagent")
_FIELD_MANAGER: Final = "bindery-install"
_VALUES: Final[Mapping[str, object]] = {
    "workloads": {"enabled": False},
    "hollow": {"enabled": True, "namePrefixes": [""]},
    # No server runs for the webhook on a machine without a cluster network; its own tests start
    # one.
    "webhook": {"enabled": False},
}


@dataclass(frozen=True)
class Installation:
    """The chart's resources on one control plane."""

    control_plane: ControlPlane
    kubeconfigs: Mapping[str, Path]
    """Component -> a kubeconfig with the token of its ServiceAccount, valid for a day."""
    scheduler_configuration: SchedulerConfiguration
    binder_configuration: BinderConfiguration
    grouper_configuration: GrouperConfiguration
    """The configurations that the chart rendered."""

    def grant_lease(self, node_pool: str) -> None:
        """Apply the Lease of a release for `node_pool`, and the scheduler's right to it.

        For further schedulers beside the installed one; their charts are not applied as a whole.

        Raises:
            ControlPlaneError: helm or the API server refused a resource, which the text names.
        """
        pool = {"scheduler": {"configuration": {"nodePool": node_pool}}}
        documents = render(self.control_plane, {**_VALUES, **pool})
        of_lease = {"Lease", "Role", "RoleBinding"}
        name = f"bindery-scheduler-{node_pool}"
        _apply(
            self.control_plane,
            [each for each in documents if each["kind"] in of_lease and _name(each) == name],
        )


def install(
    control_plane: ControlPlane, values: Mapping[str, object] | None = None
) -> Installation:
    """Render the chart with `values` beside those for a local run, apply it and wait for the kinds.

    Raises:
        ControlPlaneError: helm or the API server refused a resource, which the text names.
    """
    documents = render(control_plane, {**_VALUES, **(values or {})})
    _apply(control_plane, [_namespace(), *documents])
    control_plane.kubectl(
        "wait",
        "--for=condition=Established",
        "--timeout=30s",
        f"--filename={checkout.ROOT / 'crds'}",
    )
    configurations = _configurations(documents)
    accounts = {f"{RELEASE}-{name}" for name in (*COMPONENTS, "webhook", "dashboard")}
    made = {_name(each) for each in documents if each["kind"] == "ServiceAccount"}
    return Installation(
        control_plane,
        {
            account.removeprefix(f"{RELEASE}-"): _kubeconfig(control_plane, account)
            for account in sorted(accounts & made, key=str)
        },
        SchedulerConfiguration.model_validate(configurations["scheduler"]),
        BinderConfiguration.model_validate(configurations["binder"]),
        GrouperConfiguration.model_validate(configurations["grouper"]),
    )


def render(
    control_plane: ControlPlane, values: Mapping[str, object], release: str = RELEASE
) -> list[dict[str, object]]:
    """Render the chart with `values` by helm, as the release with this name.

    Raises:
        ControlPlaneError: helm refused the values; the text names the key.
    """
    version = json.loads(control_plane.kubectl("get", "--raw=/version"))["gitVersion"]
    chart = checkout.ROOT / "charts/bindery"
    command = [str(control_plane.helm_path), "template", release, str(chart), "--include-crds"]
    command += [f"--namespace={NAMESPACE}", f"--kube-version={version}", "--values=-"]
    text = control_plane.run(command, stdin=json.dumps(values))
    return [document for document in yaml.safe_load_all(text) if document]


def _apply(control_plane: ControlPlane, documents: list[dict[str, object]]) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
    control_plane.kubectl(
        "apply", "--server-side", f"--field-manager={_FIELD_MANAGER}", "--filename=-", stdin=text
    )


def _namespace() -> dict[str, object]:
    """Return the namespace, which holds its pods to the restricted security standard."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata = {"name": NAMESPACE, "labels": labels}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def _name(document: Mapping[str, object]) -> object:
    metadata = document["metadata"]
    return metadata["name"] if isinstance(metadata, dict) else None


def _kubeconfig(control_plane: ControlPlane, account: str) -> Path:
    token = control_plane.kubectl(
        "create", "token", account, f"--namespace={NAMESPACE}", "--duration=24h"
    )
    component = account.removeprefix(f"{RELEASE}-")
    path = control_plane.state_dir / "kubeconfigs" / f"{component}.kubeconfig"
    server = kubeconfig.Server.read(control_plane.admin_kubeconfig)
    return kubeconfig.write(path, server, account, token.strip())


def _configurations(documents: list[dict[str, object]]) -> dict[str, object]:
    """Return the configuration files in the rendered ConfigMaps, by component."""
    files: dict[str, object] = {}
    for document in documents:
        data = document.get("data")
        if document["kind"] == "ConfigMap" and isinstance(data, dict):
            for name, text in data.items():
                files[name.removesuffix(".yaml")] = yaml.safe_load(text)
    missing = {"scheduler", "binder", "grouper"} - files.keys()
    if missing:
        raise ControlPlaneError(f"the chart renders no configuration for {sorted(missing)}")
    return files
