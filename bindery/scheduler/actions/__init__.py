"""Actions: what a cycle does, in the configured order. Each walks jobs and writes Statements."""
