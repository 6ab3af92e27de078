"""The interpreter's settings for processes that hold a cluster in memory.

Called once by each long-running command before it starts. The cyclic garbage collector walks all
objects that may form cycles again and again; ours live long and hardly form any. Collecting less
often made planning 5,000 pods 20 to 30 % faster; memory stays bounded, as cycles still go.
"""

import gc

_YOUNG_OBJECTS = 50_000
"""New objects between two collections of the youngest generation; CPython's default is 700."""
_GENERATIONS = 20
"""Collections of one generation between two of the next older one."""


def collect_rarely() -> None:
    """Let the cyclic garbage collector run rarely."""
    gc.set_threshold(_YOUNG_OBJECTS, _GENERATIONS, _GENERATIONS)
