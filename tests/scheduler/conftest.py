"""Lets these tests use the proxy of the tests of bindery.kube, and the clock of the binder's."""

import sys
from pathlib import Path

for folder in ("kube", "binder"):
    sys.path.append(str(Path(__file__).parent.parent / folder))
