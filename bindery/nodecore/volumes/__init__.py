"""The volume manager: which volumes pods want, which are there, and the steps between the two."""
