"""`make demo`: a gang from submission to its bound pods, on a real control plane.

Run by `make demo`, `make demo-up` and `make demo-down`. `devcluster.stack` brings the cluster up,
`devcluster.demo.story` submits the examples and checks their outcomes. Exit code 0 means that all
examples behaved as described in their comments.
"""

import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from devcluster import find, stack
from devcluster.demo import real, story
from devcluster.errors import ControlPlaneError

app = typer.Typer(
    help="Show Bindery on a control plane of its own.", no_args_is_help=True, add_completion=False
)
app.add_typer(real.app, name="real")

_LEAST_NODES: Final = 9
"""Minimum number of nodes: the examples without devices request 68 GPUs of nodes with eight. With
simulated devices, the device nodes take some of these, and eight hollow nodes would suffice."""

Nodes = Annotated[int, typer.Option("--nodes", min=_LEAST_NODES, help="How many hollow nodes.")]

_console = Console(highlight=False, soft_wrap=True)
_begin = time.monotonic()


@app.command()
def run(nodes: Nodes = 20) -> None:
    """Start a cluster, submit the examples, show the result, and stop everything."""
    # SIGTERM unwinds like Ctrl-C, so that all processes are stopped on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    state_dir = Path(tempfile.mkdtemp(prefix="bindery-demo-"))
    plan = stack.Plan(nodes, find.Options(state_dir=state_dir), story.NAMESPACE)
    try:
        with stack.Stack(plan, _report) as cluster:
            _play(cluster, nodes)
            _report("taking everything down")
    except ControlPlaneError as error:
        _fail(error, state_dir)
    shutil.rmtree(state_dir, ignore_errors=True)
    _report("done: everything went as it should")


@app.command()
def up(nodes: Nodes = 20) -> None:
    """Start the same cluster and leave it running."""
    state_dir = _state_dir()
    left = stack.left_up(state_dir)
    if left.running:
        if left.ended:
            _console.print(f"these processes of the demo have ended: {', '.join(left.ended)}")
            _console.print(f"the logs are in {state_dir / 'logs'}", markup=False)
        _console.print("the demo is up already; take it down with `make demo-down`")
        raise typer.Exit(1)
    shutil.rmtree(state_dir, ignore_errors=True)
    state_dir.mkdir(parents=True)
    options = find.Options(state_dir=state_dir, tethered=False)
    plan = stack.Plan(nodes, options, story.NAMESPACE)
    try:
        cluster = stack.Stack(plan, _report)
        cluster.start()
        try:
            _play(cluster, nodes)
        finally:
            # The cluster stays up, so that the failure can be inspected.
            cluster.detach()
    except ControlPlaneError as error:
        _fail(error, state_dir)
    _console.print(_how_to_play(cluster), markup=False)


@app.command()
def down() -> None:
    """Stop the cluster that `up` started."""
    try:
        found = stack.take_down(_state_dir(), _report)
    except ControlPlaneError as error:
        _fail(error, _state_dir())
    _report("the demo is down" if found else "the demo is not up")


def _play(cluster: stack.Stack, nodes: int) -> None:
    scene = story.Scene(cluster.control_plane, _report, cluster.check)
    with_devices = story.DEVICE_EXAMPLES if cluster.has_devices else ()
    examples = (*story.EXAMPLES, *story.WORKLOADS, *with_devices)
    try:
        story.wait_for_nodes(scene, nodes)
        story.submit(scene, examples)
        story.wait_for_outcomes(scene, examples)
        for step in story.steps(scene.plane):
            _console.print(f"\n[bold]$ {escape(step.shown)}[/bold]")
            _console.print(step.run().rstrip(), markup=False)
    except ControlPlaneError:
        cluster.check()  # a process that has ended is the reason
        raise


def _report(line: str) -> None:
    _console.print(f"[dim]{time.monotonic() - _begin:6.1f} s[/dim]  {escape(line)}")


def _fail(error: ControlPlaneError, state_dir: Path) -> NoReturn:
    _console.print(str(error), style="red", markup=False)
    _console.print(f"the logs are in {state_dir / 'logs'}", markup=False)
    raise typer.Exit(1) from error


def _state_dir() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "bindery" / "demo"


def _how_to_play(cluster: stack.Stack) -> str:
    plane = cluster.control_plane
    metrics = "\n".join(
        f"  {name:<12} http://127.0.0.1:{port}/metrics"
        for name, port in cluster.health_ports.items()
    )
    return f"""
It is up. To look around:

  export KUBECONFIG={plane.admin_kubeconfig}
  export PATH={Path(sys.executable).parent}:{plane.kubectl_path.parent}:$PATH

  kubectl get podgroups,bindrequests,pods -n {story.NAMESPACE}
  bindery get gangs -A
  bindery explain over-limit -n {story.NAMESPACE}

In a browser, with the token that the second line prints:

  {cluster.page}
  kubectl create token bindery-dashboard -n bindery-system

Raise the limit, and the gang that waits for it runs:

  kubectl patch queue.scheduling.bindery.dev small-team --type=merge \\
    -p '{{"spec": {{"resources": {{"gpu": {{"limit": 16}}}}}}}}'

The metrics, and the probes /healthz and /readyz on the same ports:

{metrics}

The logs are in {plane.state_dir / "logs"}. Take it down with `make demo-down`.
"""


if __name__ == "__main__":
    app(prog_name="python -m devcluster.demo")
