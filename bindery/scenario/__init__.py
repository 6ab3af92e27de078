"""Scenario files: a small cluster, the jobs that are submitted, and the expected result.

`files` reads them into the models of `format`, `runner` plays them on the in-memory cluster of
`cluster` with the scheduler's own engine, and `expect` compares. `snapshot` writes a live cluster
as a scenario, `manifests` reads what `bindery whatif` submits. Nothing of the scheduler is done
again here.
"""
