"""Measurements of Bindery against kube-scheduler and against a bare client: `make bench`.

`__main__` reads the options and runs the parts: `planning` and `room` in memory, `races` on one
control plane.
`results` holds what they measured, `report` puts it into docs/performance/. Nothing here ships.
"""
