"""Actions: the steps of a cycle, in the configured order. Each goes over jobs and makes Statements."""
