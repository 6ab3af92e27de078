"""Random worlds to plan in: mixed nodes, trees of queues, gangs, and pods in many states."""

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from bindery.kube.objects import watched as kube
from bindery.kube.objects.podgroups import PodGroup, SubGroup
from bindery.kube.objects.queues import Queue
from tests.scheduler.schedulerworld import group, node, pod, queue

SHAPES = ((1, 0), (2, 0), (1, 1), (3, 2))
"""CPU and GPU of one pod."""
SPECIAL = "example.com/licence"
SUB_GROUPS = [
    SubGroup(name="left", min_member=1),
    SubGroup(name="right", min_member=1),
]


@dataclass(frozen=True)
class World:
    """What the API server holds."""

    nodes: Sequence[kube.Node]
    queues: Sequence[Queue]
    groups: Sequence[PodGroup]
    pods: Sequence[kube.Pod]

    @property
    def objects(self) -> list[kube.KubeObject]:
        return [*self.queues, *self.nodes, *self.groups, *self.pods]


@st.composite
def worlds(
    draw: st.DrawFn, *, foreign: bool = True, releasing: bool = True, most_jobs: int = 5
) -> World:
    """Draw a world. `foreign`: with pods of other schedulers; `releasing`: with pods that go."""
    nodes = [
        node(
            f"n{i}",
            draw(st.integers(1, 8)),
            draw(st.sampled_from([0, 0, 2, 4])),
            pods=draw(st.sampled_from([3, 110])),
            model=draw(st.sampled_from([None, "H100", "A100"])),
            more={SPECIAL: draw(st.integers(0, 2))},
        )
        for i in range(draw(st.integers(0, 4)))
    ]
    names = [item.metadata.name for item in nodes]
    queues = _queues(draw)
    queue_names = ["default", "missing", *(item.metadata.name for item in queues)]
    groups: list[PodGroup] = []
    pods: list[kube.Pod] = []
    for number in range(draw(st.integers(0, most_jobs))):
        name = f"job{number}"
        size = draw(st.integers(1, 5))
        shapes = draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=2))
        is_group = draw(st.booleans())
        if is_group and draw(st.integers(0, 9)):
            groups.append(
                group(
                    name,
                    draw(st.integers(0, size)),
                    draw(st.sampled_from(queue_names)),
                    preemptibility=draw(st.sampled_from([None, None, "NonPreemptible"])),
                    roles=draw(st.sampled_from([{}, {}, {"worker": 1}])),
                    sub_groups=draw(st.sampled_from([[], [], SUB_GROUPS])),
                )
            )
        for i in range(size):
            cpu, gpu = shapes[i % len(shapes)]
            on = draw(st.sampled_from(["", "", "", *names, "unknown"]))
            leaves = releasing and bool(on) and draw(st.booleans())
            pods.append(
                pod(
                    f"{name}-{i}",
                    cpu,
                    gpu,
                    group=name if is_group else None,
                    queue=None if is_group else draw(st.sampled_from(queue_names)),
                    on=on,
                    deleting="2025-06-15T15:06:41Z" if leaves else None,
                    gated=not on and draw(st.integers(0, 9)) == 0,
                    preemptible=draw(st.sampled_from([None, None, None, True, False])),
                    role=draw(st.sampled_from(["", "worker"])) if is_group else "",
                    sub_group=draw(st.sampled_from(["", "left", "right"])) if is_group else "",
                    scheduler="other" if foreign and draw(st.integers(0, 5)) == 0 else "bindery",
                    more={SPECIAL: draw(st.sampled_from([0, 0, 1]))},
                )
            )
    return World(nodes, queues, groups, pods)


def _queues(draw: st.DrawFn) -> list[Queue]:
    queues: list[Queue] = []
    for i in range(draw(st.integers(0, 3))):
        parents = [None, *(item.metadata.name for item in queues)]
        limits = draw(
            st.dictionaries(st.sampled_from(["cpu", "gpu"]), st.integers(0, 8), max_size=2)
        )
        queues.append(
            queue(
                f"q{i}",
                parent=draw(st.sampled_from(parents)),
                priority=draw(st.sampled_from([100, 100, 200])),
                limits={key: limit or -1 for key, limit in limits.items()},
                quotas={"gpu": draw(st.sampled_from([0, 1, 4, -1]))},
            )
        )
    return queues
