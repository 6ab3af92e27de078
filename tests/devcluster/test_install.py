"""The chart's resources on a real API server, and the permissions of each component."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from bindery.api.configuration import SchedulerConfiguration
from devcluster import checkout
from devcluster.errors import ControlPlaneError
from devcluster.install import Installation, install, render
from devcluster.plane import ControlPlane

pytestmark = pytest.mark.e2e


SUBRESOURCES = {"", "binding", "eviction", "status"}


def may(installation: Installation, component: str, verb: str, resource: str, scope: str) -> bool:
    """Ask the API server, under the component's own token."""
    plane = installation.control_plane
    command = [str(plane.kubectl_path), f"--kubeconfig={installation.kubeconfigs[component]}"]
    kind, _, part = resource.partition("/")
    # A subresource of all objects, or one object by its name.
    which = [kind, f"--subresource={part}"] if part in SUBRESOURCES else [resource]
    question = ["auth", "can-i", verb, *which, scope]
    try:
        plane.run([*command, *question])
    except ControlPlaneError as error:
        assert str(error).strip() == "kubectl: no", error  # noqa: PT017  the answer, by exit code
        return False
    return True


EVERYWHERE = "--all-namespaces"
OWN = "--namespace=bindery-system"
LEASES = "--namespace=kube-system"


@pytest.mark.parametrize(
    ("component", "verb", "resource", "scope"),
    [
        ("scheduler", "create", "bindrequests.scheduling.bindery.dev", EVERYWHERE),
        ("scheduler", "patch", "podgroups.scheduling.bindery.dev/status", EVERYWHERE),
        ("scheduler", "patch", "pods/status", EVERYWHERE),
        ("scheduler", "create", "pods/eviction", EVERYWHERE),
        ("scheduler", "update", "leases.coordination.k8s.io/bindery-scheduler", LEASES),
        ("binder", "update", "leases.coordination.k8s.io/bindery-binder", LEASES),
        ("binder", "create", "pods/binding", EVERYWHERE),
        ("binder", "patch", "bindrequests.scheduling.bindery.dev/status", EVERYWHERE),
        ("nodeagent", "create", "nodes", EVERYWHERE),
        ("nodeagent", "patch", "leases.coordination.k8s.io", "--namespace=kube-node-lease"),
    ],
)
def test_a_component_may_do_its_work(
    installation: Installation, component: str, verb: str, resource: str, scope: str
) -> None:
    assert may(installation, component, verb, resource, scope)


@pytest.mark.parametrize(
    ("component", "verb", "resource", "scope"),
    [
        ("scheduler", "create", "pods/binding", EVERYWHERE),
        ("scheduler", "patch", "bindrequests.scheduling.bindery.dev/status", EVERYWHERE),
        ("scheduler", "delete", "pods", EVERYWHERE),
        ("scheduler", "patch", "pods", EVERYWHERE),
        ("scheduler", "update", "leases.coordination.k8s.io", "--namespace=kube-node-lease"),
        ("scheduler", "update", "leases.coordination.k8s.io/bindery-binder", LEASES),
        ("scheduler", "create", "leases.coordination.k8s.io", LEASES),
        ("binder", "update", "leases.coordination.k8s.io", LEASES),
        ("binder", "create", "leases.coordination.k8s.io", OWN),
        ("binder", "create", "bindrequests.scheduling.bindery.dev", EVERYWHERE),
        ("binder", "patch", "podgroups.scheduling.bindery.dev/status", EVERYWHERE),
        ("binder", "create", "pods/eviction", EVERYWHERE),
        ("binder", "get", "secrets", EVERYWHERE),
        ("nodeagent", "create", "pods/binding", EVERYWHERE),
        ("nodeagent", "get", "bindrequests.scheduling.bindery.dev", EVERYWHERE),
    ],
)
def test_a_component_may_not_do_the_work_of_another(
    installation: Installation, component: str, verb: str, resource: str, scope: str
) -> None:
    assert not may(installation, component, verb, resource, scope)


def with_plugins(component: str, *plugins: Mapping[str, object]) -> dict[str, Any]:
    return {component: {"configuration": {"plugins": list(plugins)}}}


def with_rows(text: str) -> dict[str, Any]:
    return {"grouper": {"rowFiles": {"mine.yaml": text}}}


def test_plugins_of_a_custom_image_and_their_arguments_are_accepted(
    control_plane: ControlPlane,
) -> None:
    racks = {"name": "racks", "arguments": {"label": "example.com/rack"}}
    shipped = {"name": "hami", "arguments": {"nodePolicy": None, "devicePolicy": "numa"}}
    values = {
        "ownPlugins": ["racks"],
        **with_plugins("scheduler", racks, shipped),
        **with_plugins("binder", {"name": "hami", "arguments": {"expireSeconds": 5}}),
    }

    render(control_plane, values)


def test_rows_of_the_examples_are_accepted(control_plane: ControlPlane) -> None:
    rows = checkout.ROOT / "examples" / "workloads" / "own-kind" / "rows.yaml"

    render(control_plane, with_rows(rows.read_text()))


def test_an_installation_can_be_repeated(installation: Installation) -> None:
    again = install(installation.control_plane)

    listed = again.control_plane.kubectl("get", "priorityclasses", "-o", "yaml")
    values = {item["metadata"]["name"]: item["value"] for item in yaml.safe_load(listed)["items"]}
    builtin = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
    assert builtin.items() <= values.items()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"schedulr": {}}, "'schedulr' not allowed"),
        ({"scheduler": {"configuration": {"cycleSecond": 1}}}, "'cycleSecond' not allowed"),
        ({"scheduler": {"configuration": {"bindRequest": {"maxPods": 501}}}}, "maxPods"),
        ({"scheduler": {"configuration": {"actions": ["nonsense"]}}}, "actions/0"),
        ({"binder": {"replicas": -1}}, "replicas"),
        ({"hollow": {"enabled": "yes"}}, "hollow/enabled"),
        ({"dashboard": {"replicas": 2}}, "'replicas' not allowed"),
        (with_plugins("scheduler", {"name": "topolgy"}), "there is no plugin topolgy; shipped are"),
        (
            with_plugins("scheduler", {"name": "gpu_sharing"}),
            r"plugins\[0\]: there is no plugin gpu_sharing; did you mean gpusharing\?",
        ),
        (
            with_plugins("binder", {"name": "dra"}, {"name": "node_lock"}),
            r"plugins\[1\]: there is no plugin node_lock; did you mean hami\?",
        ),
        (with_plugins("binder", {"name": "gang"}), r"binder\.configuration\.plugins\[0\]: .* gang"),
        (
            {"nodePools": [{"name": "a", **with_plugins("scheduler", {"name": "x"})["scheduler"]}]},
            "there is no plugin x",
        ),
        (
            with_plugins("scheduler", {"name": "gang"}, {"name": "dra", "arguments": {"a": 1}}),
            r"plugins\[1\]: the plugin dra has no argument a; it has: none",
        ),
        (
            with_plugins("scheduler", {"name": "nodeplacement", "arguments": {"gpus": "spread"}}),
            "nodeplacement has no argument gpus; it has: cpu, device, gpu",
        ),
        (
            with_plugins("scheduler", {"name": "nodeplacement", "arguments": {"gpu": "fast"}}),
            r"arguments\.gpu: fast is none of: fragmentation, binpack, spread",
        ),
        (
            with_plugins("binder", {"name": "volumes", "arguments": {"bindTimeoutSeconds": "2m"}}),
            r"arguments\.bindTimeoutSeconds: this must be of type number",
        ),
        (
            {"grouper": {"configuration": {"rowFiles": ["mine.yaml"]}}},
            r"there is no file mine\.yaml in grouper\.rowFiles",
        ),
        (with_rows("rows: [}"), r"grouper\.rowFiles\.mine\.yaml: .*yaml"),
        (with_rows("kind: ConfigMap\nrows: []"), "the kind is ConfigMap, and not GrouperTable"),
        (with_rows("row: []"), "unknown key row; there are: apiVersion, kind, rows"),
        (with_rows("kind: GrouperTable"), "rows must be a list"),
        (with_rows("rows: [{match: {kind: A}, mim: x}]"), r"rows\[0\] has an unknown key mim"),
        (with_rows("rows: []\n---\nrows: [{min: x}]"), r"rows\[0\]\.match\.kind is missing"),
    ],
)
def test_wrong_values_are_refused_with_the_name_of_their_key(
    control_plane: ControlPlane, values: dict[str, object], message: str
) -> None:
    with pytest.raises(ControlPlaneError, match=message):
        render(control_plane, values)


def test_the_api_server_accepts_the_deployments_under_the_restricted_standard(
    control_plane: ControlPlane, namespace: str
) -> None:
    """Warnings of the namespace's security standard are errors of this test."""
    control_plane.kubectl(
        "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted"
    )
    deployments = [
        document for document in render(control_plane, {}) if document["kind"] == "Deployment"
    ]

    assert len(deployments) == 4  # the scheduler, the binder, the grouper, the webhook
    for deployment in deployments:
        spec = deployment["spec"]
        assert isinstance(spec, dict)
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": spec["template"]["spec"]["containers"][0]["name"]},
            "spec": {**spec["template"]["spec"], "serviceAccountName": "default"},
        }
        control_plane.kubectl(
            "create",
            "--dry-run=server",
            "--validate=strict",
            "--filename=-",
            f"--namespace={namespace}",
            stdin=yaml.safe_dump(pod),
        )


def rules(plane: ControlPlane, component: str, *plugins: str) -> dict[str, set[str]]:
    """Return what the ClusterRole of `component` allows where it runs only `plugins`."""
    chosen = [{"name": name} for name in plugins]
    values = {component: {"configuration": {"plugins": chosen}}, "ownPlugins": ["third-party"]}
    [role] = [
        document
        for document in render(plane, values)
        if document["kind"] == "ClusterRole"
        and document["metadata"]["name"] == f"bindery-{component}"  # type: ignore[index]
    ]
    found: dict[str, set[str]] = {}
    for rule in role["rules"]:  # type: ignore[attr-defined]
        for resource in rule["resources"]:
            found.setdefault(resource, set()).update(rule["verbs"])
    return found


def test_a_component_gets_the_permissions_of_a_plugin_only_with_the_plugin(
    control_plane: ControlPlane,
) -> None:
    bare = rules(control_plane, "binder", "third-party")
    assert bare["nodes"] == {"get", "list", "watch"}
    assert bare["pods"] == {"get", "list", "watch", "patch"}, "finalizers of ended pods go"
    assert not bare.keys() & {"configmaps", "persistentvolumes", "resourceclaims"}
    assert "patch" in rules(control_plane, "binder", "volumes")["persistentvolumes"]
    assert "create" in rules(control_plane, "binder", "gpusharing")["configmaps"]
    assert "patch" in rules(control_plane, "binder", "hami")["nodes"]
    assert "patch" in rules(control_plane, "binder", "dra")["resourceclaims"]

    bare = rules(control_plane, "scheduler", "predicates")
    assert not bare.keys() & {"persistentvolumes", "resourceclaims", "storageclasses"}
    assert not bare.keys() & {"provisioningrequests", "podtemplates"}
    assert rules(control_plane, "scheduler", "provisioning")["podtemplates"] == {"create", "delete"}
    assert "watch" in rules(control_plane, "scheduler", "volumes")["persistentvolumes"]
    assert "watch" in rules(control_plane, "scheduler", "dra")["resourceslices"]


def test_scaling_pods_have_a_namespace_and_permissions_only_with_their_plugin(
    control_plane: ControlPlane,
) -> None:
    def in_namespace(*plugins: Mapping[str, object]) -> dict[str, list[str]]:
        values = {"scheduler": {"configuration": {"plugins": list(plugins)}}}
        found: dict[str, list[str]] = {}
        for each in render(control_plane, values):
            metadata = each["metadata"]
            assert isinstance(metadata, dict)
            if each["kind"] == "Role" and metadata["name"] == "bindery-scheduler":
                written = each["rules"]
                assert isinstance(written, list)
                (rule,) = written
                found[metadata["namespace"]] = [*rule["resources"], *rule["verbs"]]
        return found

    rights = ["pods", "create", "delete"]
    assert not set(in_namespace({"name": "predicates"})) & {"bindery-scaling"}
    assert in_namespace({"name": "scalingpods"})["bindery-scaling"] == rights
    named = {"name": "scalingpods", "arguments": {"namespace": "elsewhere"}}
    assert in_namespace(named)["elsewhere"] == rights


@pytest.fixture
def of_another_release(installation: Installation) -> Iterator[None]:
    """The Leases belong to a release called `first` in the namespace `one`."""
    plane = installation.control_plane
    leases = ["lease", "bindery-binder", "bindery-scheduler", "--namespace=kube-system"]
    owner = {"meta.helm.sh/release-name": "first", "meta.helm.sh/release-namespace": "one"}
    plane.kubectl("annotate", *leases, *(f"{key}={value}" for key, value in owner.items()))
    yield
    plane.kubectl("annotate", *leases, *(f"{key}-" for key in owner))


def install_second(plane: ControlPlane, *settings: str) -> str:
    """Let helm look at the cluster and install nothing."""
    chart = str(checkout.ROOT / "charts/bindery")
    command = [str(plane.helm_path), f"--kubeconfig={plane.admin_kubeconfig}", "install", "second"]
    options = ["--namespace=two", "--dry-run=server", "--skip-crds"]
    shared = [f"{name}.enabled=false" for name in ("priorityClasses", "webhook", "grouper")]
    return plane.run([*command, chart, *options, f"--set={','.join([*shared, *settings])}"])


@pytest.mark.usefixtures("of_another_release")
def test_helm_refuses_a_second_binder_or_scheduler_and_names_the_first_release(
    installation: Installation,
) -> None:
    plane = installation.control_plane
    first = "release first in namespace one has this cluster's"
    pool = "scheduler.configuration.nodePool=b"
    with pytest.raises(ControlPlaneError, match=f"{first} bindery-binder .*binder.enabled=false"):
        install_second(plane, pool)
    with pytest.raises(ControlPlaneError, match=f"{first} bindery-scheduler .*nodePool"):
        install_second(plane, "binder.enabled=false")

    assert "bindery-scheduler-b" in install_second(plane, "binder.enabled=false", pool)


def named(documents: list[dict[str, object]], kind: str) -> dict[str, dict[str, Any]]:
    """Return the `documents` of `kind` by name."""
    found: list[dict[str, Any]] = [each for each in documents if each["kind"] == kind]
    return {each["metadata"]["name"]: each for each in found}


POOLS: Mapping[str, object] = {
    "scheduler": {"configuration": {"cycleSeconds": 2, "backfill": {"reservations": 3}}},
    "nodePools": [
        {"name": ""},
        {"name": "b", "replicas": 1, "configuration": {"backfill": {"reservations": 0}}},
    ],
}


def test_a_release_has_one_scheduler_per_node_pool_and_one_of_all_else(
    control_plane: ControlPlane,
) -> None:
    one, two = render(control_plane, {}), render(control_plane, POOLS)
    for kind in {str(each["kind"]) for each in one} - {"PodDisruptionBudget"}:
        of_one = set(named(one, kind))
        of_b = {
            name.replace("bindery-scheduler", "bindery-scheduler-b")
            for name in of_one
            if name == "bindery-scheduler"
        }
        shared = kind in ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")
        assert set(named(two, kind)) == of_one | (set() if shared else of_b), kind

    texts = [
        item["data"]["scheduler.yaml"]
        for item in (
            named(two, "ConfigMap")["bindery-scheduler"],
            named(two, "ConfigMap")["bindery-scheduler-b"],
        )
    ]
    first, second = (SchedulerConfiguration.model_validate(yaml.safe_load(text)) for text in texts)
    assert (first.node_pool, second.node_pool) == ("", "b")
    assert (first.cycle_seconds, second.cycle_seconds) == (2, 2)
    assert (first.backfill.reservations, second.backfill.reservations) == (3, 0)


def test_the_schedulers_of_a_release_share_no_pods_and_no_configuration(
    control_plane: ControlPlane,
) -> None:
    documents = render(control_plane, POOLS)
    deployments = named(documents, "Deployment")
    selectors = [item["spec"]["selector"]["matchLabels"] for item in deployments.values()]
    assert len({frozenset(each.items()) for each in selectors}) == len(selectors)

    for name, item in deployments.items():
        if "scheduler" in name:
            pod = item["spec"]["template"]["spec"]
            assert pod["volumes"][0]["configMap"]["name"] == name
            assert pod["serviceAccountName"] == "bindery-scheduler"
            policy = named(documents, "NetworkPolicy")[name]
            assert policy["spec"]["podSelector"] == item["spec"]["selector"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"nodePools": [{"name": "a"}, {"name": "a"}]}, 'the pool "a" twice'),
        (
            {"nodePools": [{"name": "a"}], "scheduler": {"configuration": {"nodePool": "b"}}},
            "either nodePools or scheduler.configuration.nodePool",
        ),
        ({"nodePools": [{"name": "A"}]}, "nodePools/0/name"),
        ({"nodePools": [{"name": "a", "configuration": {"nodePool": "b"}}]}, "nodePools/0/config"),
    ],
)
def test_contradictory_node_pools_are_refused(
    control_plane: ControlPlane, values: dict[str, object], message: str
) -> None:
    with pytest.raises(ControlPlaneError, match=message):
        render(control_plane, values)


def test_each_deployment_has_a_disruption_budget_and_a_network_policy(
    control_plane: ControlPlane,
) -> None:
    documents = render(control_plane, {})
    for kind in ("PodDisruptionBudget", "NetworkPolicy"):
        names = {d["metadata"]["name"] for d in documents if d["kind"] == kind}  # type: ignore[index]
        assert names == {
            f"bindery-{name}" for name in ("scheduler", "binder", "grouper", "webhook")
        }
    text = yaml.safe_dump_all([d for d in documents if d["kind"] == "NetworkPolicy"])
    control_plane.kubectl(
        "create",
        "--dry-run=server",
        "--filename=-",
        "--namespace=default",
        "--validate=strict",
        stdin=text.replace("namespace: bindery-system", "namespace: default"),
    )
    for policy in (d for d in documents if d["kind"] == "NetworkPolicy"):
        for rule in policy["spec"]["ingress"]:  # type: ignore[index]
            ports = {port["port"] for port in rule["ports"]}
            assert ("from" in rule) == ("metrics" in ports)


PAGE = {"dashboard": {"enabled": True}}


def test_the_dashboard_is_off_by_default(control_plane: ControlPlane) -> None:
    documents = render(control_plane, {})

    assert "dashboard" not in yaml.safe_dump_all(d["metadata"] for d in documents)
    assert "bindery-history" not in named(documents, "ConfigMap")


def test_the_account_of_the_dashboard_only_reads_and_gets_no_secrets(
    control_plane: ControlPlane,
) -> None:
    documents = render(control_plane, PAGE)
    bindings = [d for d in documents if str(d["kind"]).endswith("RoleBinding")]
    roles = {
        (d["roleRef"]["kind"], d["roleRef"]["name"])  # type: ignore[index]
        for d in bindings
        if {"kind": "ServiceAccount", "name": "bindery-dashboard", "namespace": "bindery-system"}
        in d["subjects"]  # type: ignore[operator]
    }
    rules = [
        rule
        for d in documents
        if (d["kind"], d["metadata"]["name"]) in roles  # type: ignore[index]
        for rule in d["rules"]  # type: ignore[attr-defined]
    ]

    assert roles == {
        ("ClusterRole", "bindery-dashboard"),
        ("ClusterRole", "bindery-reader"),
        ("Role", "bindery-reader"),
    }
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list", "watch"}
    assert "secrets" not in {kind for rule in rules for kind in rule["resources"]}
    [maps] = [rule for rule in rules if rule["resources"] == ["configmaps"]]
    assert maps["resourceNames"] == ["bindery-usage", "bindery-history"]


def test_the_dashboard_turns_on_the_history_of_each_scheduler(control_plane: ControlPlane) -> None:
    documents = render(control_plane, {**POOLS, **PAGE})
    maps = named(documents, "ConfigMap")
    [role] = [d for d in documents if d["metadata"]["name"] == "bindery-scheduler-records"][:1]  # type: ignore[index]

    assert {"bindery-history", "bindery-history-b"} <= set(maps)
    assert role["rules"][0]["resourceNames"] == ["bindery-history", "bindery-history-b"]  # type: ignore[index]
    for name in ("bindery-scheduler", "bindery-scheduler-b"):
        text = maps[name]["data"]["scheduler.yaml"]
        assert SchedulerConfiguration.model_validate(yaml.safe_load(text)).history.enabled


def test_the_history_can_be_off_beside_a_dashboard(control_plane: ControlPlane) -> None:
    values = {**PAGE, "scheduler": {"configuration": {"history": {"enabled": False}}}}

    assert "bindery-history" not in named(render(control_plane, values), "ConfigMap")


@pytest.mark.parametrize("secret", ["", "page-tls"])
def test_the_dashboard_speaks_https_if_it_has_a_certificate(
    control_plane: ControlPlane, secret: str
) -> None:
    values = {"dashboard": {"enabled": True, "tlsSecret": secret, "from": [{"podSelector": {}}]}}
    documents = render(control_plane, values)
    pod = named(documents, "Deployment")["bindery-dashboard"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    [port] = named(documents, "Service")["bindery-dashboard"]["spec"]["ports"]
    policy = named(documents, "NetworkPolicy")["bindery-dashboard"]["spec"]

    assert ("--tls-key=/etc/bindery/tls.key" in container["args"]) == bool(secret)
    assert port["port"] == (443 if secret else 80)
    assert {"ports": [{"port": "page"}], "from": [{"podSelector": {}}]} in policy["ingress"]
    assert {"readinessProbe", "livenessProbe", "startupProbe"} <= set(container)
    assert "priorityClassName" not in pod


def test_helm_renders_the_chart_without_a_cluster(control_plane: ControlPlane) -> None:
    chart = str(checkout.ROOT / "charts/bindery")
    text = control_plane.run([str(control_plane.helm_path), "template", "bindery", chart])

    assert "kind: Deployment" in text
