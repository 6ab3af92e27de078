"""What an attack counts, and the table of it."""

import json
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Figures:
    """Counts of an attack that is under way."""

    seed: int
    seconds: float = 0.0
    gangs: Counter[str] = field(default_factory=Counter)
    """Kind of gang -> how many were submitted."""
    blows: Counter[str] = field(default_factory=Counter)
    pods_bound: int = 0
    gangs_bound: int = 0
    """Gangs that had their minimum bound at some time."""
    evictions: int = 0
    rests: int = 0
    """How often everything came to rest and was looked at."""
    problems: list[str] = field(default_factory=list)

    def problem(self, text: str) -> None:
        """Note what must not be."""
        self.problems.append(text)
        print(f"PROBLEM: {text}", flush=True)  # the program's output

    def table(self) -> str:
        """Return the figures as text for people."""
        gangs = ", ".join(f"{kind} {count}" for kind, count in sorted(self.gangs.items()))
        blows = ", ".join(f"{kind} {count}" for kind, count in sorted(self.blows.items()))
        lines = [
            f"seed {self.seed}, {self.seconds / 60:.1f} minutes",
            f"gangs submitted   {self.gangs.total():6d}  ({gangs})",
            f"gangs bound       {self.gangs_bound:6d}",
            f"pods bound        {self.pods_bound:6d}  (nodes, GPUs and queues recounted at each)",
            f"pods evicted      {self.evictions:6d}",
            f"blows             {self.blows.total():6d}  ({blows})",
            f"rests             {self.rests:6d}",
            f"problems          {len(self.problems):6d}",
            *(f"  {problem}" for problem in self.problems[:50]),
        ]
        return "\n".join(lines)

    def to_json(self) -> str:
        """Return the figures for programs."""
        return json.dumps(
            {
                "seed": self.seed,
                "seconds": round(self.seconds, 1),
                "gangs": dict(self.gangs),
                "gangsBound": self.gangs_bound,
                "podsBound": self.pods_bound,
                "podsEvicted": self.evictions,
                "blows": dict(self.blows),
                "rests": self.rests,
                "problems": self.problems,
            },
            indent=2,
        )
