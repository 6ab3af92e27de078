"""Scenario files: a small cluster, what is asked of it, and what must come out.

`files` reads them into the models of `format`, `runner` plays them on the in-memory cluster of
`cluster` with the scheduler's own engine, and `expect` compares. Nothing of the scheduler is
done again here. Used by `bindery scenario run`, `bindery snapshot` and the behaviour tests.
"""
