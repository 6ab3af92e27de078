"""Random small worlds, each from its seed.

Queues have no weight, and a claim within the quota of its queue is within those above it: then the
documentation leaves no doubt which queue may take from which.
"""

from dataclasses import replace
from random import Random

from tests.exhaustive import rules
from tests.exhaustive.worlds import BLOCK, HOST, RACK, Job, Node, Part, Pod, Queue, Term, World

MOST_NODES, MOST_PODS = 5, 8
_EXTRAS = (
    "cores",
    "cordons",
    "selectors",
    "domain",
    "domain",
    "sub-groups",
    "sub-groups",
    "stages",
    "roles",
    "choice",
    "elastic",
    "elastic",
    "exclusive claimant",
    "exclusive others",
    "affinity",
    "anti-affinity",
    "claims",
    "limits",
    "pinned",
    "joining",
)
_SHAPES = ("one queue", "two queues", "three queues", "tree")


def make(seed: int) -> World:
    """Return the world of `seed`."""
    random = Random(seed)
    while True:
        world = _Maker(random, seed).make()
        if world is not None and is_clear(world):
            return world


def is_clear(world: World) -> bool:
    """Return whether the claimant lacks its minimum, and the rules of its queues leave no doubt.

    A claim within the quota of its queue must be within those above it, too.
    """
    claimant = world.claimant
    if rules.has_minimum(claimant, ()):
        return False
    request = sum(pod.gpus for pod in claimant.pods if not pod.node)
    request += sum(part.later.gpus * part.least for part in claimant.parts if part.later)
    fits = [
        _held(world, name) + request <= world.queue_of[name].quota
        for name in world.chain(claimant.queue)
    ]
    return not fits[0] or all(fits)


def _held(world: World, queue: str) -> int:
    return sum(
        pod.gpus
        for job in world.jobs
        if queue in world.chain(job.queue)
        for pod in job.pods
        if pod.node
    )


class _Maker:
    """Makes one world."""

    def __init__(self, random: Random, seed: int) -> None:
        self._random = random
        self._seed = seed
        self._extras = set(random.sample(_EXTRAS, random.choice((0, 1, 1, 2, 2, 3))))
        self._pods_left = MOST_PODS
        self._nodes = self._make_nodes()
        self._free = {node.name: (node.gpus, node.cores) for node in self._nodes}
        self._devices = {node.name: node.devices for node in self._nodes}
        shape = random.choice(_SHAPES)
        self._parents = {"q0": ""}
        if shape != "one queue":
            self._parents["q1"] = ""
        if shape == "three queues":
            self._parents["q2"] = ""
        if shape == "tree":
            self._parents |= {"q0": "p0", "q1": random.choice(("p0", "p1")), "q2": "p1"}

    def make(self) -> World | None:
        """Return the world; None if there is no room for its claimant."""
        random = self._random
        asked = random.randint(1, 4)
        running: list[Job] = []
        for number in range(random.choice((0, 2, 3, 4, 5, 5))):
            job = self._make_running(f"j{number}", self._pods_left - asked)
            if job is not None:
                running.append(job)
        claimant = self._make_claimant(min(asked, self._pods_left))
        if claimant is None:
            return None
        jobs = (*running, claimant)
        return World(self._seed, tuple(self._nodes), self._make_queues(jobs), jobs)

    def _is(self, extra: str) -> bool:
        return extra in self._extras

    def _maybe(self, extra: str, percent: int = 50) -> bool:
        return extra in self._extras and self._random.randrange(100) < percent

    # -- nodes and queues ------------------------------------------------------------------------

    def _make_nodes(self) -> list[Node]:
        random = self._random
        blocks, racks = random.randint(1, 2), random.randint(1, 2)
        nodes = []
        for number in range(random.randint(1, MOST_NODES)):
            block = f"b{random.randrange(blocks)}"
            cordoned, fast = self._maybe("cordons", 30), not self._maybe("selectors", 40)
            node = Node(
                f"n{number}",
                random.randint(1, 4),
                random.choice((2, 4, 6)) if self._is("cores") else 16,
                block,
                f"{block}r{random.randrange(racks)}",
                cordoned,
                fast,
                random.choice((0, 1, 1, 2)) if self._is("claims") else 0,
            )
            nodes.append(node)
        return nodes

    def _make_queues(self, jobs: tuple[Job, ...]) -> tuple[Queue, ...]:
        random, claimant = self._random, jobs[-1]
        quotas: dict[str, int] = {}
        held = {
            name: sum(p.gpus for job in jobs if job.queue == name for p in job.pods if p.node)
            for name in self._parents
        }
        asked = sum(pod.gpus for pod in claimant.pods if not pod.node)
        asked += sum(part.later.gpus * part.least for part in claimant.parts if part.later)
        for name in self._parents:
            quotas[name] = random.randint(0, held[name] + 1)
            if name == claimant.queue and random.randrange(5):
                quotas[name] = held[name] + asked + random.randint(0, 2)
            elif random.randrange(2):
                quotas[name] = random.randint(0, held[name] // 2)
        queues = []
        for parent in sorted({*self._parents.values()} - {""}):
            below = [name for name, above in self._parents.items() if above == parent]
            total = sum(quotas[name] for name in below)
            queues.append(self._queue(parent, "", total, sum(held[name] for name in below), asked))
        for name, parent in self._parents.items():
            queues.append(self._queue(name, parent, quotas[name], held[name], asked))
        return tuple(queues)

    def _queue(self, name: str, parent: str, quota: int, held: int, asked: int) -> Queue:
        queue = Queue(name, quota, parent)
        if self._maybe("limits", 60):
            queue = replace(queue, limit=max(quota, held + self._random.randint(0, asked)))
        if self._random.randrange(12) == 0:
            queue = replace(queue, is_reclaimable=False)
        return queue

    # -- jobs that run ---------------------------------------------------------------------------

    def _make_running(self, name: str, most: int) -> Job | None:
        random = self._random
        wanted = min(most, random.choice((1, 1, 1, 2, 2, 3)))
        gpus = random.choice((1, 1, 1, 2, 2, 3))
        exclusive = self._maybe("exclusive others", 60)
        level = random.choice((RACK, RACK, BLOCK)) if exclusive else ""
        allowed = list(self._free)
        if exclusive:
            allowed = self._empty_domain(level)
        pods: list[Pod] = []
        for _ in range(wanted):
            pod = Pod(gpus, random.choice((0, 1, 2)) if self._is("cores") else 0)
            node = self._place(pod, allowed)
            if node:
                pods.append(replace(pod, node=node, app=random.choice(("", "x", "y"))))
        if not pods:
            return None
        if exclusive:
            self._close(pods, level)
        self._pods_left -= len(pods)
        least = random.randint(1, len(pods)) if self._is("elastic") else len(pods)
        roles = {}
        if self._maybe("roles") and len(pods) > 1:
            pods = [replace(pod, role=random.choice("ab")) for pod in pods]
            role = random.choice(pods).role
            roles = {role: 1}
        if self._maybe("anti-affinity", 40):
            term = Term(random.choice("xy"), random.choice((HOST, RACK)), is_anti=True)
            pods = [replace(pod, term=term) for pod in pods]
        if self._is("claims") and self._devices[pods[0].node] and random.randrange(3):
            self._devices[pods[0].node] -= 1
            there = pods[0].node
            pods = [replace(p, claim=f"c-{name}") if p.node == there else p for p in pods]
        return Job(
            name,
            random.choice(list(self._parents)),
            random.choice((30, 40, 40, 50, 60)),
            least,
            tuple(pods),
            not self._maybe("pinned", 40),
            roles,
            level=level,
            is_exclusive=exclusive,
        )

    def _place(self, pod: Pod, allowed: list[str]) -> str:
        """Return a random node of `allowed` that has room, and take the room; "" for none."""
        fits = [
            name
            for name in allowed
            if name in self._free
            and self._free[name][0] >= pod.gpus
            and self._free[name][1] >= pod.cores
        ]
        if not fits:
            return ""
        name = self._random.choice(fits)
        gpus, cores = self._free[name]
        self._free[name] = gpus - pod.gpus, cores - pod.cores
        return name

    def _empty_domain(self, level: str) -> list[str]:
        """Return the nodes of a random domain without pods."""
        domains: dict[tuple[str, ...], list[Node]] = {}
        for node in self._nodes:
            domains.setdefault(node.domain(level), []).append(node)
        empty = [
            [node.name for node in nodes]
            for nodes in domains.values()
            if all(self._free.get(n.name) == (n.gpus, n.cores) for n in nodes)
        ]
        return self._random.choice(empty) if empty else []

    def _close(self, pods: list[Pod], level: str) -> None:
        mine = {node.domain(level) for node in self._nodes if node.name == pods[0].node}
        for node in self._nodes:
            if node.domain(level) in mine:
                self._free.pop(node.name, None)

    # -- the job that is next --------------------------------------------------------------------

    def _make_claimant(self, count: int) -> Job | None:
        random = self._random
        if count < 1:
            return None
        even = random.randrange(3) > 0
        size = random.choice((1, 1, 2, 2, 3, 4))
        pods = [
            Pod(
                size if even else random.randint(1, 3),
                random.choice((0, 1, 2, 3)) if self._is("cores") else 0,
                app="x" if self._is("affinity") or self._is("anti-affinity") else "",
                wants_fast=self._maybe("selectors", 70),
            )
            for _ in range(count)
        ]
        job = Job(
            "next",
            random.choice(list(self._parents)),
            random.choice((50, 60, 60, 70)),
            count,
            tuple(pods),
            not self._maybe("pinned", 30),
        )
        if self._is("domain"):
            job = replace(job, level=random.choice((RACK, RACK, BLOCK)))
        if self._is("exclusive claimant"):
            job = replace(job, level=random.choice((RACK, RACK, BLOCK)), is_exclusive=True)
        for extra, change in (
            ("sub-groups", self._with_parts),
            ("stages", self._with_stage),
            ("roles", self._with_roles),
            ("choice", self._with_choice),
            ("affinity", self._with_affinity),
            ("anti-affinity", self._with_anti_affinity),
            ("claims", self._with_claims),
            ("joining", self._with_running_pod),
        ):
            if self._is(extra):
                job = change(job)
        return job

    def _with_parts(self, job: Job) -> Job:
        random, count = self._random, len(job.pods)
        if count < 2:
            return job
        first = random.randint(1, count - 1)
        levels = ("", RACK, RACK) if job.level != RACK else ("", RACK)
        parts = (
            Part("left", first, random.choice(levels)),
            Part("right", count - first, random.choice(levels)),
        )
        pods = [replace(p, part="left" if i < first else "right") for i, p in enumerate(job.pods)]
        return replace(job, parts=parts, pods=tuple(pods))

    def _with_stage(self, job: Job) -> Job:
        count = self._random.randint(0, min(2, MOST_PODS - self._taken(job)))
        if job.parts or not count:
            return job
        later = Pod(self._random.randint(1, 3))
        parts = (Part("first", len(job.pods)), Part("later", count, later=later))
        return replace(job, parts=parts, pods=tuple(replace(p, part="first") for p in job.pods))

    def _taken(self, job: Job) -> int:
        return MOST_PODS - self._pods_left + len(job.pods)

    def _with_roles(self, job: Job) -> Job:
        if job.parts or len(job.pods) < 2:
            return job
        pods = [replace(pod, role="ab"[min(i, 1)]) for i, pod in enumerate(job.pods)]
        workers = self._random.randint(1, len(pods) - 1)
        return replace(job, roles={"a": 1, "b": workers}, least=1 + workers, pods=tuple(pods))

    def _with_choice(self, job: Job) -> Job:
        if job.parts or job.roles:
            return job
        return replace(job, least=self._random.randint(1, len(job.pods)))

    def _with_affinity(self, job: Job) -> Job:
        term = Term(self._random.choice("xxy"), self._random.choice((HOST, RACK)), is_anti=False)
        return self._with_term(job, term)

    def _with_anti_affinity(self, job: Job) -> Job:
        if self._random.randrange(4) == 0:
            return job
        term = Term(self._random.choice("xy"), self._random.choice((HOST, RACK)), is_anti=True)
        return self._with_term(job, term)

    def _with_term(self, job: Job, term: Term) -> Job:
        least = 0 if self._random.randrange(2) else len(job.pods) - 1
        pods = [replace(p, term=term) if i >= least else p for i, p in enumerate(job.pods)]
        return replace(job, pods=tuple(pods))

    def _with_claims(self, job: Job) -> Job:
        sharing = self._random.randint(1, len(job.pods))
        pods = [replace(p, claim="c-next") if i < sharing else p for i, p in enumerate(job.pods)]
        return replace(job, pods=tuple(pods))

    def _with_running_pod(self, job: Job) -> Job:
        first = job.pods[0]
        if len(job.pods) < 2 or job.is_exclusive or first.claim:
            return job
        node = self._place(first, list(self._free))
        return replace(job, pods=(replace(first, node=node), *job.pods[1:])) if node else job
