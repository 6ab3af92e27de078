"""Reads the cluster for a command: a live cluster, or the cluster of a scenario.

The modules that read a live cluster or a scenario are imported only when needed: each import takes
a third of a second.
"""

from dataclasses import replace

import typer

from bindery.answers.source import Source
from bindery.cli.importing import importing
from bindery.cli.options import Origin


def of_pool(context: typer.Context, origin: Origin, source: Source, node_pool: str) -> Source:
    """Return `source` for the scheduler of `node_pool`, with that scheduler's configuration.

    `origin`: the options with which `source` was read.
    """
    if source.configuration.node_pool == node_pool:
        return source
    if origin.file is not None:
        return source.in_pool(node_pool)
    from bindery.cli.reading.livesource import read_for_pool

    return read_for_pool(context, replace(origin, node_pool=node_pool), source)


def read_source(context: typer.Context, origin: Origin, *, with_jobs: bool = False) -> Source:
    """Read the cluster or file in `origin` once; `with_jobs`: including the Jobs of a cluster.

    Raises:
        FileError: a file cannot be used.
        KubeError: the cluster does not answer, or refuses.
    """
    if origin.file is not None:
        with importing():
            from bindery.cli.reading.scenariosource import read_scenario_source

        return read_scenario_source(origin.file, origin)
    with importing():
        from bindery.cli.reading.livesource import read_live_source

    return read_live_source(context, origin, with_jobs=with_jobs)
