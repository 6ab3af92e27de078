"""Fakes of hardware: device plugins and the kubelets that call them.

Used by tests, benchmarks and the demo, against the real API server. A fake speaks the protocol of
what it plays and knows nothing of Bindery beyond that. `python -m fakes` plays all of them.
"""
