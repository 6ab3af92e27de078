"""The `bindery` command, also installed as `kubectl bindery`; each module is one sub-command."""
