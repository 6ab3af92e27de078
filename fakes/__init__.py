"""Fakes of hardware: device plugins and the kubelets that call them.

Used by tests, benchmarks and the demo, against the real API server. A fake implements the
protocol of its hardware and knows nothing of Bindery beyond that. `python -m fakes`
runs all of them.
"""
