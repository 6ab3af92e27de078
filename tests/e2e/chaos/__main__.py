"""`make chaos`: the attack on a control plane of its own; exit code 1 if anything was wrong."""

import argparse
import asyncio
import secrets
import sys
import tempfile
from pathlib import Path

from devcluster import find
from devcluster.install import install
from tests.e2e.chaos.attack import Plan, attack


def main() -> int:
    """Run it, print the figures, write them to a file if one is named."""
    parser = argparse.ArgumentParser(
        prog="make chaos",
        description="Churn gangs, shares, queues and nodes while everything is killed and cut off.",
        epilog="example: make chaos MINUTES=5 SEED=7",
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None, help="default: drawn, and printed")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    seed = secrets.randbits(32) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    state_dir = Path(tempfile.mkdtemp(prefix="bindery-chaos-"))
    with find.find(find.Options(state_dir=state_dir), report=print) as plane:
        figures = asyncio.run(attack(install(plane), Plan(given.minutes * 60, seed)))
    print(figures.table())
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(figures.to_json(), encoding="utf-8")
    if figures.problems:
        print(f"the logs are in {state_dir / 'logs'}")
    return 1 if figures.problems else 0


if __name__ == "__main__":
    sys.exit(main())
