"""Sends the pods of cases to a kubelet and to the agent, and compares what comes of them."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bindery.kube.client import Client
from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.node import RealNode
from tests.e2e.realnode.agentdiffers import DIFFERENCES, Difference
from tests.e2e.realnode.nodeplay import Played, Stage
from tests.e2e.realnode.nodepods import Case
from tests.e2e.realnode.nodeseen import Facts, NodeView

_LONGEST_S, _PATIENCE_S = 100.0, 20.0
_GONE_S = 200.0
"""A kubelet removes logs and sandboxes of gone pods once a minute."""


@dataclass(frozen=True)
class Pair:
    """What became of the pods of one case: by a kubelet, and by the agent."""

    kubelet: Played
    agent: Played

    def differing(self) -> list[tuple[str, Any, Any]]:
        """Return what differs: path of a fact, with the kubelet, with the agent."""
        found = []
        for number, (left, right) in enumerate(
            zip(self._facts(self.kubelet), self._facts(self.agent), strict=True)
        ):
            found += [
                (f"{number}/{path}", left.get(path), right.get(path))
                for path in sorted(left.keys() | right.keys())
                if left.get(path) != right.get(path)
            ]
        return found

    def _facts(self, played: Played) -> list[Facts]:
        """Return the facts of each pod; of a pod that was removed first, its last status."""
        gone = len(played.histories) - len(played.seen)
        seen: list[Facts] = [{"status": one.states[-1]} for one in played.histories[:gone]]
        return [
            {**facts, "phases": history.phases}
            for history, facts in zip(played.histories, [*seen, *played.seen], strict=True)
        ]


@dataclass
class Comparison:
    """The pods of a kubelet and of the agent. `alone`: one case after the other."""

    cluster: RealCluster
    namespace: str
    nodes: tuple[RealNode, RealNode]
    pairs: dict[str, Pair] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    """What is left on the nodes of pods that are gone."""

    async def play(self, tables: Sequence[tuple[Mapping[str, Case], bool]]) -> None:
        """Play tables of cases; the second of each pair: whether each case has its node alone."""
        address = self.cluster.control_plane.admin_kubeconfig
        async with Client.connect(address, user_agent="bindery-test/0") as client:
            views = [NodeView(node, client, self.namespace) for node in self.nodes]
            for cases, alone in tables:
                ordered = list(cases.values())
                both = await asyncio.gather(
                    *(self._stage(client, view).play(ordered, alone=alone) for view in views)
                )
                pairs = (Pair(*pair) for pair in zip(*both, strict=True))
                self.pairs |= dict(zip(cases, pairs, strict=True))

            await self._end(views)

    async def _end(self, views: Sequence[NodeView]) -> None:
        """Wait until nothing is left; what does not go is in `left`."""
        loop = asyncio.get_running_loop()
        given_up_s = loop.time() + _GONE_S
        while loop.time() < given_up_s:
            self.left = [text for view in views for text in view.left()]
            if not self.left:
                return
            await asyncio.sleep(0.2)

    def _stage(self, client: Client, view: NodeView) -> Stage:
        node = view.node.name
        return Stage(
            client,
            self.namespace,
            node,
            dict,
            look=view.look,
            longest_s=_LONGEST_S,
            patience_s=_PATIENCE_S,
        )


def undeclared(case: str, pair: Pair) -> list[str]:
    """Return what differs without being in the list of differences."""
    return [
        f"{path}: kubelet {left!r}, agent {right!r}"
        for path, left, right in pair.differing()
        if not any(one.covers(case, path, left, right) for one in DIFFERENCES)
    ]


def unseen(pairs: Mapping[str, Pair]) -> list[Difference]:
    """Return the declared differences of played cases that no case shows, but for chance."""
    found = [(case, *difference) for case, pair in pairs.items() for difference in pair.differing()]
    return [
        one
        for one in DIFFERENCES
        if not one.by_chance
        and any(re.fullmatch(one.case, case) for case in pairs)
        and not any(one.covers(*each) for each in found)
    ]
