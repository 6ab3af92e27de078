"""The writes of the binder's plugin `volumes` for pods, and their rollback.

The volume controller of the real control plane runs without a provisioner: the tests create the
volumes. The controller never binds a volume that is smaller than its claim, so the rollback of the
writes can be observed.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from bindery.api.configuration import BinderConfiguration, PluginConfiguration
from devcluster.components import Component
from tests.binder.bindercluster import ALONE, Cluster

pytestmark = pytest.mark.e2e

Start = Callable[..., Component]
Share = Callable[..., None]
SELECTED = "volume.kubernetes.io/selected-node"
MARK = "scheduling.bindery.dev/chosen-for"


@dataclass(frozen=True)
class Storage:
    """Classes, volumes and claims of one test."""

    cluster: Cluster

    def full(self, name: str) -> str:
        return f"{self.cluster.namespace}-{name}"

    def add_class(self) -> None:
        self._create("storage.k8s.io/v1", "StorageClass", self.full("late"), {
            "provisioner": "nobody.example.com",
            "volumeBindingMode": "WaitForFirstConsumer",
        })  # fmt: skip

    def add_claim(
        self, name: str = "data", node: str | None = None, storage_class: str = "late"
    ) -> dict[str, Any]:
        """Create a claim with `node` selected for its provisioning; return the entry."""
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": self.full(storage_class),
            "resources": {"requests": {"storage": "5Gi"}},
        }
        annotations = {SELECTED: node} if node else {}
        self._create("v1", "PersistentVolumeClaim", name, {"spec": spec}, annotations)
        return {"name": name, "uid": self.cluster.uid("PersistentVolumeClaim", name)}

    def add_leaving_claim(self, name: str = "data") -> dict[str, Any]:
        """Create a claim that is being deleted; return the entry."""
        entry = self.add_claim(name)
        self.keep(name, ["test.bindery.dev/keep"])
        self.cluster.kubectl("delete", "pvc", name, "--wait=false")
        return entry

    def keep(self, name: str, finalizers: list[str]) -> None:
        """Let the claim go only without `finalizers`."""
        patch = json.dumps({"metadata": {"finalizers": finalizers}})
        self.cluster.kubectl("patch", "pvc", name, "--type=merge", f"--patch={patch}")

    def add_volume(
        self, name: str, size: str, claim_ref: dict[str, str] | None = None, node: str | None = None
    ) -> str:
        spec: dict[str, Any] = {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": self.full("late"),
            "persistentVolumeReclaimPolicy": "Retain",
            "csi": {"driver": "nobody.example.com", "volumeHandle": name},
        }
        if claim_ref is not None:
            spec["claimRef"] = {"namespace": self.cluster.namespace, **claim_ref}
        if node is not None:
            here = {"key": "metadata.name", "operator": "In", "values": [node]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchFields": [here]}]}}
        self._create("v1", "PersistentVolume", self.full(name), {"spec": spec})
        return self.full(name)

    def make_for(self, entry: dict[str, Any], node: str | None = None) -> str:
        """Provision what the claim asks for, as a driver would."""
        reference = {"name": entry["name"], "uid": entry["uid"]}
        return self.add_volume(f"made-{entry['name']}", "5Gi", reference, node)

    def request(self, name: str, *entries: Sequence[dict[str, Any]], **spec: Any) -> None:
        """Create a request for new pods, one for each of `entries`: what its claims get."""
        bindings = self.cluster.add_pods(name, len(entries))
        pods = [
            {**binding, "pluginData": {"volumes": {"claims": list(each)}}}
            for binding, each in zip(bindings, entries, strict=True)
        ]
        self.cluster.create(self.cluster.request(name, pods, **{"backoffLimit": 0, **spec}))

    def claim(self, name: str = "data") -> dict[str, Any]:
        return self._get("pvc", name)

    def volume(self, full_name: str) -> dict[str, Any]:
        return self._get("pv", full_name)

    def wait_selected(self, name: str = "data") -> None:
        path = "{.metadata.annotations.volume\\.kubernetes\\.io/selected-node}"
        self.cluster.kubectl("wait", f"pvc/{name}", f"--for=jsonpath={path}", "--timeout=30s")

    def clean(self) -> None:
        selector = f"--selector=made-by={self.cluster.namespace}"
        for name in self.cluster.kubectl("get", "pvc", "--output=name").split():
            self.keep(name.rpartition("/")[2], [])
        for kind in ("pvc", "pv", "storageclass"):
            self.cluster.kubectl("delete", kind, selector, "--wait=false")

    def _get(self, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.cluster.kubectl("get", kind, name, "-o=json"))
        return found

    def _create(
        self,
        api_version: str,
        kind: str,
        name: str,
        body: dict[str, Any],
        annotations: dict[str, str] | None = None,
    ) -> None:
        labels = {"made-by": self.cluster.namespace}
        metadata = {"name": name, "labels": labels, "annotations": annotations or {}}
        self.cluster.create({"apiVersion": api_version, "kind": kind, "metadata": metadata, **body})


@pytest.fixture
def storage(cluster: Cluster) -> Iterator[Storage]:
    cluster.add_nodes(2)
    storage = Storage(cluster)
    storage.add_class()
    yield storage
    storage.clean()


def configuration(timeout_s: float, **settings: Any) -> BinderConfiguration:
    arguments = {"bindTimeoutSeconds": timeout_s}
    plugin = PluginConfiguration(name="volumes", arguments=arguments)
    return BinderConfiguration(plugins=(plugin,), leader_election=ALONE, **settings)


def annotations_of(item: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = item["metadata"].get("annotations", {})
    return found


def test_a_pod_is_bound_after_its_claim_has_the_chosen_volume(
    storage: Storage, share_binder: Share
) -> None:
    entry, chosen = storage.add_claim(), storage.add_volume("chosen", "9Gi")
    share_binder(configuration(60))

    storage.request("r", [{**entry, "volume": chosen}])

    storage.cluster.wait_for("r", "Succeeded")
    claim = storage.claim()
    assert (claim["status"]["phase"], claim["spec"]["volumeName"]) == ("Bound", chosen)
    assert annotations_of(storage.volume(chosen))["pv.kubernetes.io/bound-by-controller"] == "yes"


def test_a_claim_that_is_not_provisioned_in_time_is_restored(
    storage: Storage, share_binder: Share
) -> None:
    entry = storage.add_claim()
    share_binder(configuration(1))

    storage.request("r", [{**entry, "volume": ""}])

    status = storage.cluster.wait_for("r", "Failed")
    assert status["reason"] == "VolumesNotBound"
    assert "after 1 s these claims are not all bound: data" in status["message"]
    assert not {SELECTED, MARK} & annotations_of(storage.claim()).keys()
    assert storage.cluster.nodes_of("r") == [""]


def test_a_request_reports_that_another_pods_rollback_deselected_its_claim(
    storage: Storage, share_binder: Share
) -> None:
    entry = storage.add_claim()
    share_binder(configuration(60))
    storage.request("first", [{**entry, "volume": ""}])
    storage.wait_selected()
    storage.request("second", [{**entry, "volume": ""}])
    deadline = time.monotonic() + 30
    while "claim data to be bound" not in storage.cluster.status("second").get("message", ""):
        assert time.monotonic() < deadline, "the second request waits for the claim"

    storage.cluster.kubectl("delete", "bindrequest", "first", "--wait=false")

    status = storage.cluster.wait_for("second", "Failed")
    assert status["reason"] == "ClaimDeselected"
    assert "another pod that uses it requested this" in status["message"]


def test_a_claim_deleted_during_the_preparation_of_its_gang_fails_the_gang(
    storage: Storage, share_binder: Share
) -> None:
    leaving, late = storage.add_claim("leaving"), storage.add_claim("late")
    storage.make_for(leaving)
    share_binder(configuration(60))
    storage.request("gang", [{**leaving, "volume": ""}], [{**late, "volume": ""}])
    storage.wait_selected("late")
    storage.cluster.kubectl("wait", "pvc/leaving", "--for=jsonpath={.status.phase}=Bound")
    storage.keep("leaving", ["test.bindery.dev/keep"])

    storage.cluster.kubectl("delete", "pvc", "leaving", "--wait=false")
    storage.make_for(late)

    assert storage.cluster.wait_for("gang", "Failed")["reason"] == "ClaimBeingDeleted"
    assert storage.cluster.nodes_of("gang") == ["", ""]


def test_a_node_selected_by_another_process_is_kept_on_the_claim(
    storage: Storage, share_binder: Share
) -> None:
    here, other = storage.cluster.node(0), "elsewhere"
    same = storage.add_claim("same", node=here)
    elsewhere = storage.add_claim("elsewhere", node=other)
    share_binder(configuration(1))

    storage.request("gang", [{**same, "volume": ""}, {**elsewhere, "volume": ""}])

    status = storage.cluster.wait_for("gang", "Failed")
    assert "claim elsewhere is being provisioned for node elsewhere" in status["message"]
    assert annotations_of(storage.claim("same"))[SELECTED] == here
    assert annotations_of(storage.claim("elsewhere"))[SELECTED] == other


def test_a_volume_that_is_not_bound_in_time_is_released(
    storage: Storage, share_binder: Share
) -> None:
    entry, chosen = storage.add_claim(), storage.add_volume("too-small", "1Gi")
    share_binder(configuration(1))

    storage.request("r", [{**entry, "volume": chosen}])

    assert storage.cluster.wait_for("r", "Failed")["reason"] == "VolumesNotBound"
    volume = storage.volume(chosen)
    assert "claimRef" not in volume["spec"]
    assert not {MARK, "pv.kubernetes.io/bound-by-controller"} & annotations_of(volume).keys()


def test_a_claim_ref_set_by_an_administrator_is_kept_if_the_pod_is_not_bound(
    storage: Storage, share_binder: Share
) -> None:
    entry = storage.add_claim()
    promised = storage.add_volume("promised", "1Gi", {"name": "data"})
    share_binder(configuration(1))

    storage.request("r", [{**entry, "volume": promised}])

    storage.cluster.wait_for("r", "Failed")
    reference = storage.volume(promised)["spec"]["claimRef"]
    assert (reference["name"], reference.get("uid")) == ("data", None)


def test_a_volume_of_another_claim_is_not_changed(storage: Storage, share_binder: Share) -> None:
    entry = storage.add_claim()
    taken = storage.add_volume("taken", "9Gi", {"name": "another", "uid": "its-uid"})
    share_binder(configuration(60))

    storage.request("r", [{**entry, "volume": taken}])

    assert storage.cluster.wait_for("r", "Failed")["reason"] == "VolumeTaken"
    assert storage.volume(taken)["spec"]["claimRef"]["uid"] == "its-uid"


def test_a_volume_unusable_on_the_node_is_detected_before_the_binding(
    storage: Storage, share_binder: Share
) -> None:
    entry = storage.add_claim()
    storage.make_for(entry, storage.cluster.node(1))
    share_binder(configuration(60))

    storage.request("r", [entry])  # the pod is planned for node 0

    status = storage.cluster.wait_for("r", "Failed")
    assert status["reason"] == "VolumeNodeConflict"
    assert storage.cluster.nodes_of("r") == [""]


BAD: dict[str, tuple[Callable[[Storage], dict[str, Any]], str]] = {
    "a claim that is gone": (lambda _: {"name": "gone", "uid": "u", "volume": ""}, "ClaimGone"),
    "another claim of its name": (
        lambda storage: {**storage.add_claim(), "uid": "of-another", "volume": ""},
        "ClaimGone",
    ),
    "a volume that is gone": (
        lambda storage: {**storage.add_claim(), "volume": "no-such-volume"},
        "VolumeGone",
    ),
    "a claim that is being deleted": (
        lambda storage: {**storage.add_leaving_claim(), "volume": ""},
        "ClaimBeingDeleted",
    ),
    "a storage class that does not exist": (
        lambda storage: {**storage.add_claim(storage_class="missing"), "volume": ""},
        "StorageClassMissing",
    ),
    "data that cannot be read": (lambda _: {"name": 5}, "InvalidPluginData"),
}


@pytest.mark.parametrize("case", BAD)
def test_an_impossible_volume_fails_the_request_at_once_with_the_reason(
    storage: Storage, share_binder: Share, case: str
) -> None:
    make, reason = BAD[case]
    entry = make(storage)
    share_binder(configuration(60))

    storage.request("r", [entry], backoffLimit=5)

    assert storage.cluster.wait_for("r", "Failed")["reason"] == reason


def test_the_next_binder_completes_a_wait_for_volumes_of_a_killed_one(
    storage: Storage, start_binder: Start
) -> None:
    entry = storage.add_claim()
    first = start_binder(configuration(60), name="first")
    storage.request("r", [{**entry, "volume": ""}])
    storage.wait_selected()

    first.kill()
    start_binder(configuration(60), name="second")
    made = storage.make_for(entry)

    storage.cluster.wait_for("r", "Succeeded")
    assert storage.claim()["spec"]["volumeName"] == made
    assert storage.cluster.nodes_of("r") == [storage.cluster.node(0)]


def test_a_request_deleted_while_it_waits_for_its_claims_leaves_nothing(
    storage: Storage, share_binder: Share
) -> None:
    entry = storage.add_claim()
    share_binder(configuration(60))
    storage.request("r", [{**entry, "volume": ""}])
    storage.wait_selected()

    storage.cluster.kubectl("delete", "bindrequest", "r", "--wait=false")

    deadline = time.monotonic() + 30
    while {SELECTED, MARK} & annotations_of(storage.claim()).keys():
        assert time.monotonic() < deadline, "what was written on the claim is taken back"


def test_a_request_changed_while_it_waits_for_claims_is_processed_as_changed(
    storage: Storage, share_binder: Share
) -> None:
    entry = storage.add_claim()
    share_binder(configuration(60))
    storage.request("r", [{**entry, "volume": ""}])
    storage.wait_selected()
    first = annotations_of(storage.claim())[SELECTED]

    node = storage.cluster.node(1)
    path = "/spec/statements/0/pods/0/selectedNode"
    change = f'[{{"op": "replace", "path": "{path}", "value": "{node}"}}]'
    storage.cluster.kubectl("patch", "bindrequest", "r", "--type=json", f"--patch={change}")
    deadline = time.monotonic() + 30
    while annotations_of(storage.claim()).get(SELECTED) != node:
        assert time.monotonic() < deadline, "the claim is asked for at the other node"
    storage.make_for(entry, node)

    storage.cluster.wait_for("r", "Succeeded")
    assert first == storage.cluster.node(0)
    assert storage.cluster.nodes_of("r") == [node]


def test_requests_that_wait_for_volumes_do_not_delay_others(
    storage: Storage, start_binder: Start
) -> None:
    start_binder(configuration(60, concurrent_binds=1))
    for number in range(3):
        entries = [[{**storage.add_claim(f"c{number}-{n}"), "volume": ""}] for n in range(2)]
        storage.request(f"waits-{number}", *entries)
    storage.wait_selected("c2-0")

    storage.request("quick", [], [])

    storage.cluster.wait_for("quick", "Succeeded", timeout_s=20)
    assert storage.cluster.nodes_of("waits") == [""] * 6
