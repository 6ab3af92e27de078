"""Traces for the tests of simulations: made up, in the format of openb."""

from pathlib import Path

TINY = Path(__file__).parent / "traces" / "tiny"

NODES = "sn,cpu_milli,memory_mib,gpu,model\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,"
    "qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
)


def write_trace(folder: Path, nodes: str, pods: str) -> Path:
    """Write a trace with these rows to `folder` and return the folder."""
    (folder / "nodes.csv").write_text(NODES + nodes)
    (folder / "pods.csv").write_text(PODS + pods)
    return folder


def task(
    name: str, gpus: int = 1, milli: int = 1000, at: int = 0, until: int | None = None, cpu: int = 1
) -> str:
    """Return a row of pods.csv."""
    end = "" if until is None else until
    return f"{name},{cpu}000,1024,{gpus},{milli},,LS,Running,{at},{end},{at}\n"
