"""The `bindery` command, also installed as `kubectl bindery`; `lazy` lists the sub-commands."""
