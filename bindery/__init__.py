"""Bindery: a batch scheduler for GPU and AI work on Kubernetes."""


def __getattr__(name: str) -> str:
    """Return `__version__`, looked up when it is first asked for: the look takes 20 ms."""
    if name == "__version__":
        from importlib.metadata import version

        found = globals()[name] = version("bindery")
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
