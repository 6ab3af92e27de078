"""`bindery simulate`: its options. `simulating` plays the trace and writes the report."""

import math
from pathlib import Path
from typing import Annotated

import typer

from bindery.cli.importing import importing
from bindery.cli.options import ConfigOption, Format, PoolOption, examples

app = typer.Typer(no_args_is_help=True, add_completion=False)


_EXAMPLES = examples(
    ("simulate openb/", "a trace: nodes.csv and pods.csv"),
    ("simulate openb/ --load 0.9 --html report.html", "at 90 % of the GPUs, with charts"),
    ("simulate openb/ --arrivals-only --load 1.3", "how well jobs that never end are packed"),
    ("simulate openb/ --config a.yaml --against b.yaml", "what b.yaml would change"),
    ("simulate manifests/ -o json", "a folder of manifests, nodes among them"),
    ("simulate cluster.yaml --until 86400", "a snapshot, for a day"),
)


AgainstOption = Annotated[
    Path | None,
    typer.Option("--against", metavar="FILE", help="A second configuration to compare with."),
]
LoadOption = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        max=100.0,
        metavar="FACTOR",
        help="Change the times of arrival so that jobs request this share of all GPUs "
        "at the busiest time.",
    ),
]
PackOption = Annotated[
    bool,
    typer.Option(
        "--arrivals-only",
        help="Jobs never end. With --load: shuffle them and stop at this share of all GPUs.",
    ),
]
CycleOption = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        metavar="SECONDS",
        help="Time from a change to its cycle; longer is faster. Default: minCycleSeconds.",
    ),
]
UntilOption = Annotated[
    float, typer.Option(min=0.0, metavar="SECONDS", help="End after so long, in virtual time.")
]
GraceOption = Annotated[
    float, typer.Option(min=0.0, metavar="SECONDS", help="Time until evicted pods have gone.")
]
PageOption = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write the report as one page.")
]
PictureOption = Annotated[
    Path | None,
    typer.Option("--png", metavar="FILE", help="Write the charts; needs bindery[bench]."),
]


@app.command(epilog=_EXAMPLES)
def simulate(  # noqa: PLR0913, PLR0917 -- every option of the command line is one
    trace: Annotated[
        Path,
        typer.Argument(
            metavar="TRACE",
            help="A folder with nodes.csv and pods.csv, a folder of manifests, or a scenario.",
        ),
    ],
    config: ConfigOption = None,
    against: AgainstOption = None,
    load: LoadOption = None,
    arrivals_only: PackOption = False,
    seed: Annotated[int, typer.Option(help="For --load: another seed draws other jobs.")] = 1,
    until: UntilOption = math.inf,
    grace: GraceOption = 30.0,
    cycle: CycleOption = None,
    node_pool: PoolOption = None,
    output: Annotated[Format, typer.Option("-o", "--output")] = Format.TEXT,
    html: PageOption = None,
    png: PictureOption = None,
) -> None:
    """Play TRACE through the scheduler in memory and report how well it does.

    The engine is the one that schedules clusters; the clock is virtual, and no cluster is needed.

    The report has allocation, fragmentation, waiting by queue and size, fairness and evictions.
    The same trace, options and seed give the same report.

    Binding takes no time. Evicted pods start again from the beginning if they have a controller.

    Exit code: 0 if the simulation ran, 2 if TRACE or a configuration cannot be used,
    4 if Bindery itself fails.
    """
    with importing():
        from bindery.cli.rehearse.simulating import Choice, Outputs, answer
        from bindery.simulation.player import Settings

    settings = Settings(cycle, grace, until)
    choice = Choice(trace, (config, against), node_pool, load, arrivals_only, seed, settings)
    answer(choice, Outputs(output, html, png))
