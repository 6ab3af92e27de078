"""A real control plane on this machine, for the demo, the end-to-end tests and the benchmarks.

`find` takes the first control plane that is available, `build` makes the binaries where there is
none, `local` runs them, `install` applies the chart's resources, `components` runs Bindery's own
processes against it. Nothing here is installed in a cluster.
"""
