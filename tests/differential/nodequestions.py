"""Random machines, policies and pods for the kubelet's resource managers and for nodecore's."""

import random
from typing import Any

Json = dict[str, Any]

MIB = 1 << 20
GATES = {"PodLevelResourceManagers": False, "CPUManagerPolicyAlphaOptions": True}

MOST_PRODUCTS = 10**6
"""The kubelet tries every combination of one hint of each resource."""


class RandomNode:
    """A question about a node: a machine, its policies, and what happens to it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def question(self) -> Json:
        """Return the question; the same seed gives the same."""
        pick = self.random
        if pick.random() < 0.2:
            return self._wide_question()
        sockets = pick.choice([1, 1, 2, 2, 4])
        per_socket = pick.choice([1, 1, 2, 4]) if sockets < 4 else pick.choice([1, 2])
        pages = pick.random() < 0.4 and sockets * per_socket <= 4
        whole_pods = pick.random() < 0.3
        machine = self._machine(sockets, per_socket, pages=pages)
        memory = pick.random() < 0.7
        alpha = pick.random() < 0.4
        reserved = self._reserved(machine)
        question = {
            "machine": machine,
            "cpuPolicy": "static",
            "cpuOptions": self._options(machine, alpha=alpha),
            "reservedCPUs": reserved,
            "nodeReserved": {
                "cpu": str(self._count(reserved) or pick.choice(["500m", "1", "1500m", "2"])),
                "memory": str(100 * MIB * len(machine["nodes"])),
            },
            "memoryPolicy": "Static" if memory else "None",
            "reservedMemory": [
                {"numaNode": node["id"], "limits": {"memory": str(100 * MIB)}}
                for node in machine["nodes"]
            ],
            "topologyPolicy": pick.choice(
                ["none", "best-effort", "restricted", "single-numa-node", "single-numa-node"]
            ),
            "topologyScope": pick.choice(["container", "pod"]),
            "topologyOptions": {"prefer-closest-numa-nodes": "true"} if pick.random() < 0.4 else {},
        }
        question["steps"] = self._steps(machine, pages=pages, whole_pods=whole_pods)
        return {
            "gates": {**GATES, "PodLevelResourceManagers": whole_pods},
            "node": question,
        }

    def _wide_question(self) -> Json:
        """Return a question about CPUs alone, spread over many NUMA nodes."""
        pick = self.random
        sockets = pick.choice([2, 4, 8])
        machine = self._machine(sockets, pick.choice([8, 6, 4]) // sockets or 1, pages=False)
        options = {"distribute-cpus-across-numa": "true"}
        if pick.random() < 0.4:
            options["full-pcpus-only"] = "true"
        return {
            "gates": GATES,
            "node": {
                "machine": machine,
                "cpuPolicy": "static",
                "cpuOptions": options,
                "reservedCPUs": pick.choice(["", "0"]),
                "nodeReserved": {"cpu": "1"},
                "memoryPolicy": "None",
                "reservedMemory": [],
                "topologyPolicy": "none",
                "topologyScope": "container",
                "topologyOptions": {},
                "steps": [
                    step
                    for number in range(3)
                    for step in self._wide_steps(f"wide{number}", machine["cpus"])
                ],
            },
        }

    def _wide_steps(self, uid: str, cpus: int) -> list[Json]:
        pick = self.random
        amounts = {"cpu": str(pick.randint(1, cpus * 3 // 4)), "memory": "50Mi"}
        resources = {"requests": amounts, "limits": amounts}
        spec = {"containers": [{"name": "app", "resources": resources}]}
        metadata = {"name": uid, "namespace": "default", "uid": uid}
        steps: list[Json] = [{"admit": {"metadata": metadata, "spec": spec}}]
        return [*steps, {"gone": uid}] if pick.random() < 0.5 else steps

    def _machine(self, sockets: int, per_socket: int, *, pages: bool) -> Json:
        pick = self.random
        threads = pick.choice([1, 2, 2, 2])
        cores = pick.choice([2, 3, 4, 6, 8])
        nodes, count = sockets * per_socket, sockets * per_socket * cores
        ids = list(range(nodes)) if pick.random() < 0.8 else sorted(pick.sample(range(16), nodes))
        if pick.random() < 0.5:
            ids = list(range(nodes))
        per_cache = pick.choice([None, 1, 2, cores])
        neighbours = pick.random() < 0.3
        size = max(ids) + 1
        table = [
            [10 if a == b else pick.choice([12, 20, 32]) for a in range(size)] for b in range(size)
        ]
        return {
            "sockets": sockets,
            "cpus": count * threads,
            "nodes": [
                {
                    "id": ids[node],
                    "memory": pick.choice([1000, 1000, 1000, 700]) * MIB,
                    "distances": table[ids[node]],
                    "hugePages": [{"sizeKiB": 2048, "count": 100}] if pages else [],
                    "cores": [
                        {
                            "socket": node // per_socket,
                            "threads": [
                                core * threads + thread if neighbours else core + thread * count
                                for thread in range(threads)
                            ],
                            "uncore": None if per_cache is None else core // per_cache,
                        }
                        for core in range(node * cores, (node + 1) * cores)
                    ],
                }
                for node in range(nodes)
            ],
        }

    def _options(self, machine: Json, *, alpha: bool) -> dict[str, str]:
        pick = self.random
        options = {
            name for name in ("full-pcpus-only", "strict-cpu-reservation") if pick.random() < 0.3
        }
        other = pick.choice(
            ["", "distribute-cpus-across-numa", "prefer-align-cpus-by-uncorecache"]
            + ["distribute-cpus-across-numa"] * (len(machine["nodes"]) > 3) * 3
            + ["distribute-cpus-across-cores"] * alpha
        )
        if other == "distribute-cpus-across-cores":
            options.discard("full-pcpus-only")
        if alpha and pick.random() < 0.5:
            options.add("align-by-socket")
        return dict.fromkeys(sorted(options | {other} - {""}), "true")

    def _reserved(self, machine: Json) -> str:
        if self.random.random() < 0.6:
            return ""
        cpus = [
            cpu for node in machine["nodes"] for core in node["cores"] for cpu in core["threads"]
        ]
        return ",".join(map(str, sorted(self.random.sample(cpus, self.random.choice([1, 2])))))

    @staticmethod
    def _count(reserved: str) -> int:
        return len(reserved.split(",")) if reserved else 0

    def _steps(self, machine: Json, *, pages: bool, whole_pods: bool) -> list[Json]:
        pick = self.random
        steps: list[Json] = []
        uids: list[str] = []
        for number in range(pick.randint(3, 12)):
            act = pick.random()
            if uids and act < 0.15:
                steps.append({"gone": uids.pop(pick.randrange(len(uids)))})
            elif act < 0.22:
                steps.append({"restart": True})
            else:
                pod = self._pod(f"pod{number}", machine, pages=pages, whole=whole_pods)
                steps.append({"admit": pod})
                uids.append(pod["metadata"]["uid"])
                if pick.random() < 0.4:
                    steps += self._run(pod)
                if pick.random() < 0.1:
                    steps.append({"admit": pod})
        return steps

    def _run(self, pod: Json) -> list[Json]:
        uid, spec = pod["metadata"]["uid"], pod["spec"]
        steps: list[Json] = []
        for one in [*spec.get("initContainers", []), *spec["containers"]]:
            container_id = f"{uid}-{one['name']}"
            steps.append({"create": {"pod": uid, "name": one["name"], "id": container_id}})
            if self.random.random() < 0.15:
                steps.append({"stop": container_id})
        return steps

    def _pod(self, uid: str, machine: Json, *, pages: bool, whole: bool) -> Json:
        pick = self.random
        per_node = machine["cpus"] // len(machine["nodes"])
        guaranteed = pick.random() < 0.9
        spec: Json = {
            "containers": [
                self._container(f"app{number}", per_node, guaranteed=guaranteed, pages=pages)
                for number in range(pick.choice([1, 1, 1, 2, 3]))
            ]
        }
        if pick.random() < 0.35:
            spec["initContainers"] = [
                {
                    **self._container(
                        f"init{number}", per_node, guaranteed=guaranteed, pages=pages
                    ),
                    **({"restartPolicy": "Always"} if pick.random() < 0.4 else {}),
                }
                for number in range(pick.choice([1, 2]))
            ]
        if whole and pick.random() < 0.6:
            cpus = pick.randint(1, max(2, per_node * 2))
            amounts = {"cpu": str(cpus), "memory": f"{pick.choice([100, 400, 900, 1500])}Mi"}
            spec["resources"] = {"requests": amounts, "limits": amounts}
            self._fit(spec, cpus)
        return {
            "metadata": {"name": uid, "namespace": "default", "uid": uid},
            "spec": spec,
        }

    def _fit(self, spec: Json, cpus: int) -> None:
        """Make the containers ask for less than the pod: some share its resources."""
        containers = [*spec["containers"], *spec.get("initContainers", [])]
        share = cpus // len(containers)
        for one in containers:
            if share == 0 or self.random.random() < 0.4:
                one["resources"] = {}
                continue
            part = {"cpu": str(share), "memory": "20Mi"}
            one["resources"] = {"requests": part, "limits": part}

    def _container(self, name: str, per_node: int, *, guaranteed: bool, pages: bool) -> Json:
        pick = self.random
        cpus = pick.choice(
            [str(pick.randint(1, 4)), str(pick.randint(1, per_node * 3)), "1500m", "2", "4"]
        )
        amounts = {"cpu": cpus, "memory": f"{pick.choice([50, 100, 200, 500, 900, 1200])}Mi"}
        if pages and pick.random() < 0.5:
            amounts["hugepages-2Mi"] = f"{pick.choice([20, 100, 250])}Mi"
        if guaranteed:
            return {"name": name, "resources": {"requests": amounts, "limits": amounts}}
        return {"name": name, "resources": {"requests": {**amounts, "cpu": "100m"}}}


def random_merge(seed: int) -> Json:
    """Return a question about hints alone: few, arbitrary, with and without masks."""
    pick = random.Random(seed)
    count = pick.choice([1, 2, 2, 3, 4, 5])
    nodes = list(range(count)) if pick.random() < 0.7 else sorted(pick.sample(range(64), count))
    size = max(nodes) + 1
    closest = pick.random() < 0.4
    most = int(MOST_PRODUCTS ** (1 / 3) / 4)
    return {
        "gates": GATES,
        "merge": {
            "policy": pick.choice(["best-effort", "restricted", "single-numa-node"]),
            "options": {"prefer-closest-numa-nodes": "true"} if closest else {},
            "nodes": nodes,
            "distances": {
                node: [
                    10 if node == other else pick.choice([11, 20, 21, 32]) for other in range(size)
                ]
                for node in nodes
            },
            "providers": [_hints(pick, nodes, most) for _ in range(pick.choice([0, 1, 2, 3, 3]))],
        },
    }


def _hints(pick: random.Random, nodes: list[int], most: int) -> Json | None:
    if pick.random() < 0.1:
        return None
    return {
        f"resource{number}": None
        if pick.random() < 0.1
        else [_hint(pick, nodes) for _ in range(pick.choice([0, 1, 2, 3, 4, min(most, 8)]))]
        for number in range(pick.choice([0, 1, 1, 2]))
    }


def _hint(pick: random.Random, nodes: list[int]) -> Json:
    mask = sorted(pick.sample(nodes, pick.randint(1, len(nodes))))
    return {"nodes": None if pick.random() < 0.08 else mask, "preferred": pick.random() < 0.5}
