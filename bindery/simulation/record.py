"""The record of a simulation: jobs, evictions and samples over time. Pure data."""

from dataclasses import dataclass, field

from bindery.scheduler.model.jobs import JobKey


@dataclass(slots=True)
class JobRecord:
    """One job. Times are seconds after the start of the trace."""

    queue: str
    pods: int
    gpus: float
    """GPUs that all pods request, shares as fractions."""
    submitted_s: float
    started_s: float | None = None
    """Time at which its gang, or its single pod, was first bound; None if it never was."""
    ended_s: float | None = None
    """Time at which its last pod ended; None if it still runs or waits."""
    nodes: dict[str, str] = field(default_factory=dict)
    """Pod name -> node of its last binding."""
    evictions: int = 0
    """Number of times that a pod of it was evicted."""


@dataclass(frozen=True, slots=True)
class EvictionRecord:
    """One eviction."""

    at_s: float
    action: str
    queue: str
    """The queue of the evicted pod."""
    is_moved: bool
    """Whether the plan has another node for the pod."""
    lost_gpu_s: float
    """GPU seconds since its binding: the work that is lost without a checkpoint."""


@dataclass(frozen=True, slots=True)
class QueueSample:
    """GPUs of a queue."""

    held: float
    requested: float
    """Held, and requested by its waiting pods."""
    fair: float
    """Fair share in the cycle before."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The cluster after a cycle; it holds until the next sample."""

    at_s: float
    """Seconds after the start of the trace."""
    gpus: float
    """Allocated GPUs."""
    cpu: float
    """Allocated CPU cores."""
    waiting_pods: int
    queues: dict[str, QueueSample]


@dataclass(frozen=True, slots=True)
class FragmentationSample:
    """GPUs that are free and that the typical pod cannot use."""

    at_s: float
    gpus: float


@dataclass
class Record:
    """All that a report is made from."""

    trace: str
    nodes: int
    capacity_gpus: float
    capacity_cpu: float
    jobs: dict[JobKey, JobRecord] = field(default_factory=dict)
    evictions: list[EvictionRecord] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    fragmentation: list[FragmentationSample] = field(default_factory=list)
    end_s: float = 0.0
    """Time of the last event."""
    cycles: int = 0
    problems: dict[str, str] = field(default_factory=dict)
    """Object that the scheduler could not use -> why."""
