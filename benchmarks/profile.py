"""Run the `bindery` command under cProfile: `python -m benchmarks.profile FILE ARGUMENT...`.

Used by `python -m benchmarks --profile DIRECTORY`. The statistics are written to FILE when the
command ends, SIGTERM included; read them with `python -m pstats FILE`.
"""

import cProfile
import sys

from bindery.cli.main import main


def run() -> None:
    """Take FILE off the command line and run the rest."""
    file = sys.argv.pop(1)
    profiler = cProfile.Profile()
    try:
        profiler.runcall(main)
    finally:
        profiler.dump_stats(file)


if __name__ == "__main__":
    run()
