"""Random clusters with volumes, in-tree disks, claimed devices and declared features, as manifests.

The same seed gives the same cluster: one of `RandomCluster`, to which storage and devices are
added. What the two schedulers treat differently by intent (docs/volumes.md) is left out: a new pod
with a volume that is attached without a pod, and volumes of nominated pods.
"""

from random import Random
from typing import Any

import msgspec

from bindery.kube.objects.claims import RESOURCE_CLAIMS
from bindery.kube.objects.devices import DEVICE_CLASSES, RESOURCE_SLICES
from bindery.kube.objects.storage import RESOURCES
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.engine import Engine
from tests.randomclusters import Manifest, RandomCluster, engine_for

STORAGE, RESOURCE = "storage.k8s.io/v1", "resource.k8s.io/v1"
CSI, LOCAL, OLD = "csi.example.com", "kubernetes.io/no-provisioner", "kubernetes.io/gce-pd"
FEATURES = (
    "ExtendWebSocketsToKubelet",
    "RestartAllContainersOnContainerExits",
    "UserNamespacesHostNetworkSupport",
)
LIMITED = (CSI, "ebs.csi.aws.com", "pd.csi.storage.gke.io", "disk.csi.azure.com")
COMPLETED = {"pv.kubernetes.io/bind-completed": "yes"}
MODES = ("ReadWriteOnce", "ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod")
_KINDS = {each.kind: each.type for each in (*RESOURCES, RESOURCE_CLAIMS, DEVICE_CLASSES)} | {
    RESOURCE_SLICES.kind: RESOURCE_SLICES.type
}


class RandomStorage:
    """One cluster with one pod to place. `question` is what kube-scheduler is asked."""

    def __init__(self, seed: int) -> None:
        self.cluster = RandomCluster(seed)
        self._random = r = Random(f"storage-{seed}")
        self.objects: list[Manifest] = []
        self._names = [node["metadata"]["name"] for node in self.cluster.nodes]
        for node in self.cluster.nodes:
            declared = [name for name in FEATURES if r.random() < 0.6]
            node["status"]["declaredFeatures"] = declared
        self._add_classes()
        for name in self._names:
            self._add_csi_node(name)
            if r.random() < 0.7:
                self._add_slice(name)
        for _ in range(r.randint(0, 6)):
            self._add_free_volume()
        for _ in range(r.choice((0, 0, 1, 3))):
            self._add_attached_volume()
        for pod in self.cluster.pods:
            if "nodeName" in pod["spec"] and r.random() < 0.5:
                self._add_to(pod, pod["spec"]["nodeName"])
        self._add_to(self.cluster.pod, None)

    @property
    def question(self) -> Manifest:
        """The cluster and the pod as kube-scheduler's filters read them."""
        return {**self.cluster.question, "objects": self.objects}

    def engine(self) -> Engine:
        """Return an engine that has seen the cluster."""
        engine = engine_for(self.cluster)
        for each in self.objects:
            item = msgspec.convert(each, _KINDS[each["kind"]])
            engine.cluster.apply(Change(EventType.ADDED, item, None))
        return engine

    # -- pods ------------------------------------------------------------------------------------

    def _add_to(self, pod: Manifest, node: str | None) -> None:
        """Give `pod`, which runs on `node` or waits, volumes and devices of its own."""
        r, spec = self._random, pod["spec"]
        volumes: list[Manifest] = []
        for _ in range(r.choice((0, 1, 1, 2, 3))):
            source = self._disk() if r.random() < 0.4 else self._claim(pod, node)
            volumes.append({"name": f"v{len(volumes)}", **source})
        if volumes:
            spec["volumes"] = volumes
        if r.random() < 0.35:
            spec["resourceClaims"] = [
                {"name": "devices", "resourceClaimName": self._device_claim(pod, node)}
            ]
        if node is None and r.random() < 0.3:
            rule = {"exitCodes": {"operator": "In", "values": [1]}}
            action = r.choice(("Restart", "RestartAllContainers"))
            spec["containers"][0]["restartPolicyRules"] = [{"action": action, **rule}]
        if node is None and r.random() < 0.2:
            spec |= {"hostNetwork": r.random() < 0.7, "hostUsers": r.random() < 0.3}

    def _disk(self) -> Manifest:
        r = self._random
        reads, number = {"readOnly": r.random() < 0.5}, r.randint(1, 3)
        monitors = r.sample(("m1", "m2", "m3"), r.randint(1, 2))
        sources: list[Manifest] = [
            {"gcePersistentDisk": {"pdName": f"disk{number}", **reads}},
            {"awsElasticBlockStore": {"volumeID": f"vol-{number}", **reads}},
            {"azureDisk": {"diskName": "d", "diskURI": f"/disks/{number}"}},
            {"iscsi": {"targetPortal": "10.0.0.1", "iqn": f"iqn.{number}", "lun": 0, **reads}},
            {"rbd": {"monitors": monitors, "pool": "rbd", "image": f"i{number}", **reads}},
            {"emptyDir": {}},
            {"csi": {"driver": CSI}},
        ]
        return r.choice(sources)

    # -- volumes ---------------------------------------------------------------------------------

    def _add(self, api: str, kind: str, name: str, meta: Manifest, **body: Any) -> None:
        made = {"metadata": {"name": name, "uid": f"uid-{kind}-{name}", **meta}, **body}
        self.objects.append({"apiVersion": api, "kind": kind, **made})

    def _add_classes(self) -> None:
        late = {"volumeBindingMode": "WaitForFirstConsumer"}
        zones = self._random.sample("abc", 2)
        terms = [{"matchLabelExpressions": [{"key": "zone", "values": zones}]}]
        self._add(STORAGE, "StorageClass", "local", {}, provisioner=LOCAL, **late)
        self._add(STORAGE, "StorageClass", "made", {}, provisioner=CSI, **late)
        self._add(STORAGE, "StorageClass", "old", {}, provisioner=OLD, **late)
        more = {**late, "allowedTopologies": terms}
        self._add(STORAGE, "StorageClass", "zonal", {}, provisioner=CSI, **more)
        self._add(RESOURCE, "DeviceClass", "gpu", {}, spec={})

    def _add_csi_node(self, name: str) -> None:
        r = self._random
        drivers = [
            {"name": driver, "nodeID": name, "topologyKeys": None, "allocatable": {"count": count}}
            for driver in LIMITED
            if r.random() < 0.5 and (count := r.randint(1, 3))
        ]
        if r.random() < 0.9:
            self._add(STORAGE, "CSINode", name, {}, spec={"drivers": drivers})

    def _add_free_volume(self) -> None:
        self._volume(f"free{len(self.objects)}", "local", self._random.choice(MODES), None)

    def _add_attached_volume(self) -> None:
        """Add a volume that is attached to a node, and that no pod uses."""
        name = f"attached{len(self.objects)}"
        source = {"csi": {"driver": CSI, "volumeHandle": name}}
        self._volume(name, "made", "ReadWriteOnce", f"red/of-{name}", **source)
        spec = {
            "attacher": CSI,
            "nodeName": self._random.choice(self._names),
            "source": {"persistentVolumeName": name},
        }
        self._add(STORAGE, "VolumeAttachment", f"to-{name}", {}, spec=spec)

    def _volume(self, name: str, of: str, mode: str, claim: str | None, **source: Any) -> None:
        r, meta = self._random, {}
        node = r.choice(self._names)
        spec: Manifest = {
            "capacity": {"storage": f"{r.choice((1, 5, 10))}Gi"},
            "accessModes": [mode],
            "storageClassName": of,
            **(source or {"local": {"path": "/disk"}}),
        }
        chance = r.random()
        if of == "local" or chance < 0.3:
            terms = [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]
            required = {"nodeSelectorTerms": [{"matchExpressions": terms}]}
            spec["nodeAffinity"] = {"required": required}
        elif chance < 0.5:
            meta["labels"] = {"topology.kubernetes.io/zone": r.choice("abc")}
        if claim is not None:
            namespace, _, claim_name = claim.partition("/")
            uid = f"uid-PersistentVolumeClaim-{claim_name}"
            spec["claimRef"] = {"namespace": namespace, "name": claim_name, "uid": uid}
        phase = "Available" if claim is None else "Bound"
        self._add("v1", "PersistentVolume", name, meta, spec=spec, status={"phase": phase})

    def _claim(self, pod: Manifest, node: str | None) -> Manifest:
        """Return the source of a volume by claim; some pods of a namespace share a claim."""
        r, namespace = self._random, pod["metadata"]["namespace"]
        taken = [
            each["metadata"]["name"]
            for each in self.objects
            if each["kind"] == "PersistentVolumeClaim"
            and each["metadata"]["namespace"] == namespace
            and "volumeName" in each["spec"]
        ]
        if taken and r.random() < 0.3:
            return {"persistentVolumeClaim": {"claimName": r.choice(taken)}}
        name, mode = f"c{len(self.objects)}", r.choice(MODES)
        meta: Manifest = {"namespace": namespace}
        spec: Manifest = {"accessModes": [mode], "resources": {"requests": {"storage": "4Gi"}}}
        status = {"phase": "Pending"}
        if node is not None or r.random() < 0.6:
            of = r.choice(("made", "old"))
            handle = f"h{r.randint(1, 9)}"
            csi = {"csi": {"driver": CSI, "volumeHandle": handle}}
            disk = {"awsElasticBlockStore": {"volumeID": f"vol-{r.randint(1, 3)}"}}
            source = csi if of == "made" else disk
            self._volume(f"pv-{name}", of, mode, f"{namespace}/{name}", **source)
            spec |= {"storageClassName": of, "volumeName": f"pv-{name}"}
            meta["annotations"], status = COMPLETED, {"phase": "Bound"}
        else:
            spec["storageClassName"] = r.choice(("local", "local", "made", "zonal", "none"))
        self._add("v1", "PersistentVolumeClaim", name, meta, spec=spec, status=status)
        return {"persistentVolumeClaim": {"claimName": name}}

    # -- devices ---------------------------------------------------------------------------------

    def _add_slice(self, node: str) -> None:
        r = self._random
        devices = [
            {"name": f"d{index}", "attributes": {"model": {"string": r.choice("xy")}}}
            for index in range(r.randint(1, 4))
        ]
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": CSI, "nodeName": node, "pool": pool, "devices": devices}
        self._add(RESOURCE, "ResourceSlice", f"slice-{node}", {}, spec=spec)

    def _device_claim(self, pod: Manifest, node: str | None) -> str:
        r, name = self._random, f"d{len(self.objects)}"
        exactly: Manifest = {
            "deviceClassName": "gpu",
            "allocationMode": "ExactCount",
            "count": r.choice((1, 1, 2)),
        }
        if r.random() < 0.5:
            text = f'device.attributes["{CSI}"].model == "{r.choice("xy")}"'
            exactly["selectors"] = [{"cel": {"expression": text}}]
        spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
        meta = {"namespace": pod["metadata"]["namespace"]}
        more = {} if node is None else {"status": self._allocated(pod, node)}
        self._add(RESOURCE, "ResourceClaim", name, meta, spec=spec, **more)
        return name

    def _allocated(self, pod: Manifest, node: str) -> Manifest:
        """Return the status of the claim of a pod that runs with a device of its node."""
        device = f"d{self._random.randint(0, 3)}"
        result = {"request": "r", "driver": CSI, "pool": node, "device": device}
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        user = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        return {
            "allocation": {"devices": {"results": [result]}, "nodeSelector": selector},
            "reservedFor": [user],
        }
