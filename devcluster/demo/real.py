"""`make demo-real`: jobs on two real nodes, with kubelet, containerd and real containers.

Run by `make demo-real`, `make demo-real-up` and `make demo-real-down`. `devcluster.realnode.stack`
starts the nodes, `realstory` runs the jobs. Exit code 0 means that all jobs behaved as expected.
The nodes of `up` belong to a background process, because nodes end with the process that made them.
"""

import os
import shlex
import shutil
import signal
import stat
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from devcluster import stack
from devcluster.demo import realstory as story
from devcluster.demo.story import Scene
from devcluster.errors import ControlPlaneError
from devcluster.processes import Command, Detached, Process
from devcluster.realnode import cgroups
from devcluster.realnode.stack import RealStack

app = typer.Typer(
    help="Show Bindery on two real nodes: kubelet, containerd and containers. Needs root.",
    no_args_is_help=True,
)

_DOWN_S: Final = 120.0
_READY: Final = "ready"
_console = Console(highlight=False, soft_wrap=True)
_begin = time.monotonic()


@app.command()
def run() -> None:
    """Start two real nodes, run the jobs of examples/real-nodes, and stop everything."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    state_dir = Path(tempfile.mkdtemp(prefix="bindery-demo-"))
    try:
        with RealStack(state_dir, _report) as real:
            _play(real)
            _report("taking everything down")
    except ControlPlaneError as error:
        _fail(error, state_dir)
    shutil.rmtree(state_dir, ignore_errors=True)
    _report("done: everything went as it should")


@app.command()
def up() -> None:
    """Do the same, and leave the nodes running."""
    state_dir = _state_dir()
    if stack.left_up(state_dir).running:
        _console.print("the demo is up already; take it down with `make demo-real-down`")
        raise typer.Exit(1)
    shutil.rmtree(state_dir, ignore_errors=True)
    state_dir.mkdir(parents=True)
    command = [sys.executable, "-m", "devcluster.demo", "real", "hold", str(state_dir)]
    log = state_dir / "demo.log"
    holder = Process(Command("the demo", command, log), tethered=False)
    stack.record(state_dir, Detached((holder.record(_DOWN_S),)))
    try:
        _follow(holder, log, state_dir / _READY)
    except BaseException:
        holder.stop(_DOWN_S)
        raise
    _console.print(_how_to_play(state_dir), markup=False)


@app.command()
def down() -> None:
    """Stop the nodes that `up` started."""
    try:
        found = stack.take_down(_state_dir(), _report)
    except ControlPlaneError as error:
        _fail(error, _state_dir())
    cgroups.remove_abandoned()  # needed if the background process was killed
    _report("the demo is down" if found else "the demo is not up")


@app.command(hidden=True)
def hold(state_dir: Annotated[Path, typer.Argument(help="Where its files are.")]) -> None:
    """Be the background process of `up`: run the jobs, then keep the nodes until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with RealStack(state_dir / "cluster", _report) as real:
            _play(real)
            _write_entrances(state_dir, real)
            (state_dir / _READY).touch()
            while True:
                signal.pause()
    except ControlPlaneError as error:
        _fail(error, state_dir / "cluster")


def _play(real: RealStack) -> None:
    scene = Scene(real.control_plane, _report, real.check)
    stage = story.Stage(real, scene, _show)
    table = Table(box=None, pad_edge=False)
    table.add_column("went as it should")
    table.add_column("seconds", justify="right")
    story.prepare(stage)
    for number, chapter in enumerate(story.CHAPTERS, start=1):
        _console.print(f"\n[bold]{number}. {escape(chapter.title)}[/bold]")
        begin_s = time.monotonic()
        try:
            chapter.play(stage)
        except ControlPlaneError:
            real.check()  # a process that has ended is the reason
            raise
        table.add_row(chapter.title, f"{time.monotonic() - begin_s:.1f}")
    _console.print()
    _console.print(table)


def _show(command: str, output: str) -> None:
    _console.print(f"[bold]$ {escape(command)}[/bold]")
    _console.print(output.rstrip(), markup=False)


def _follow(holder: Process, log: Path, ready: Path) -> None:
    """Print the output of the process until its nodes are ready.

    Raises:
        typer.Exit: the process has ended; the reason is in its output.
    """
    with log.open() as output:
        while True:
            is_ready, is_running = ready.exists(), holder.is_running
            for line in output:
                _console.print(line.rstrip("\n"), markup=False)
            if is_ready:
                return
            if not is_running:
                raise typer.Exit(1)
            time.sleep(0.1)


def _write_entrances(state_dir: Path, real: RealStack) -> None:
    """Write scripts that run a command in the network of the nodes, and in each of them."""
    plane = real.control_plane
    programs = f"{Path(sys.executable).parent}:{plane.kubectl_path.parent}"
    _write_script(
        state_dir / "inside",
        "Runs a command in the network of the nodes, as their administrator: kubectl get pods -A",
        f"export KUBECONFIG={plane.admin_kubeconfig} PATH={programs}:$PATH",
        f'exec nsenter --net=/proc/{plane.processes[0].pid}/ns/net -- "$@"',
    )
    for name, node in real.nodes.items():
        _write_script(
            state_dir / name,
            "Runs a command on this node: ctr --namespace k8s.io images import - <IMAGE.tar",
            f'exec {shlex.join(node.entrance)} "$@"',
        )


def _write_script(path: Path, *lines: str) -> None:
    first, *rest = lines
    path.write_text("\n".join(("#!/bin/sh", f"# {first}", *rest, "")))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def _report(line: str) -> None:
    _console.print(f"[dim]{time.monotonic() - _begin:6.1f} s[/dim]  {escape(line)}")


def _fail(error: ControlPlaneError, state_dir: Path) -> NoReturn:
    _console.print(str(error), style="red", markup=False)
    if (logs := state_dir / "logs").exists():
        _console.print(f"the logs are in {logs}", markup=False)
    raise typer.Exit(1) from error


def _state_dir() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "bindery" / "demo-real"


def _how_to_play(state_dir: Path) -> str:
    inside = state_dir / "inside"
    return f"""
The nodes are up, in a network of their own. This command runs others inside it:

  {inside} kubectl get nodes -o wide
  {inside} kubectl get jobs,pods -n {story.NAMESPACE}
  {inside} bindery queues

Run a Job, and read its logs:

  {inside} kubectl delete job train -n {story.NAMESPACE}
  {inside} kubectl apply -n {story.NAMESPACE} -f examples/real-nodes/train.yaml
  {inside} kubectl logs -n {story.NAMESPACE} -l job-name=train --prefix

The images of the nodes are those of the examples. To import your own on each node:

  {state_dir / "node-1"} ctr --namespace k8s.io images import - <IMAGE.tar

The logs of Bindery and the nodes are below {state_dir / "cluster"}.
Take it down with `make demo-real-down`.
"""
