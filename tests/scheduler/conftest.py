"""Lets these tests use the proxy of the tests of bindery.kube."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "kube"))
