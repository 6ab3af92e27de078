"""Actions: the steps of a cycle, in the configured order. Each plans jobs in Statements."""
