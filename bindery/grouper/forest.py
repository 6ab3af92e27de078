"""Which pods hang under which owners: trees by `controller: true`, from pods up to their roots.

Pure bookkeeping between the watches and the planning: changes go in, and roots come out that must
be planned again. The invariant: the trees are a function of the pods and owners that are known now,
whatever the order in which they became known.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bindery.grouper.objects import OwnerObject, controller_of, reference_to
from bindery.grouper.owners import Found, Missing
from bindery.grouper.table.facts import PodFacts, Reference


@dataclass(eq=False)
class TreeNode:
    """A pod or an owner in a tree. A pod that owns others is both."""

    reference: Reference
    pod: PodFacts | None = None
    """None: it is not a pod of ours."""
    owner: OwnerObject | None = None
    """None: it is a pod of ours, or missing."""
    missing: Missing | None = None
    parent: "TreeNode | None" = None
    children: "dict[str, TreeNode]" = field(default_factory=dict)

    @property
    def root(self) -> "TreeNode":
        """The highest owner that is known, or referred to."""
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    def walk(self) -> "Iterator[TreeNode]":
        """Yield this node and all below it."""
        pending = [self]
        while pending:
            node = pending.pop()
            yield node
            pending.extend(node.children.values())


class Forest:
    """All trees that have pods."""

    def __init__(self, find: Callable[[Reference], Found], forget: Callable[[str], None]) -> None:
        """`find` returns an owner or why it is missing; `forget` gets the UID of each node that
        leaves its tree.
        """
        self._find = find
        self._forget = forget
        self._nodes: dict[str, TreeNode] = {}
        self._changed: dict[str, None] = {}
        """UIDs of roots, in the order in which they changed."""

    def root(self, uid: str) -> TreeNode | None:
        """Return the root with this UID, if there is one."""
        node = self._nodes.get(uid)
        return node if node is not None and node.parent is None else None

    def roots(self) -> list[str]:
        """Return the UIDs of all roots."""
        return [uid for uid, node in self._nodes.items() if node.parent is None]

    def take_changed(self) -> list[str]:
        """Return the UIDs of the roots of which something changed since the last call.

        Some of them are not roots any more.
        """
        changed, self._changed = list(self._changed), {}
        return changed

    def see_pod(self, pod: PodFacts, above: Reference | None) -> None:
        """Take note of a pod's state; `above` is its controller, or what takes its place."""
        node = self._nodes.get(pod.uid)
        if node is None:
            node = self._nodes[pod.uid] = TreeNode(pod.reference)
        elif node.pod == pod:
            return
        else:
            self._mark(node)
        if node.pod is None:
            self._forget(pod.uid)
        node.pod, node.owner, node.missing = pod, None, None
        self._hang(node, above)
        self._mark(node)

    def lose_pod(self, uid: str) -> None:
        """Take note that a pod is gone."""
        node = self._nodes.get(uid)
        if node is None:
            return
        self._mark(node)
        node.pod = None
        if node.children:
            self._look_up(node)  # pods that it controlled are there still
        else:
            self._prune(node)

    def see_owner(self, uid: str) -> None:
        """Take note that `find` may answer differently about this owner."""
        node = self._nodes.get(uid)
        if node is None or node.pod is not None:
            return
        self._mark(node)
        self._look_up(node)
        self._mark(node)

    def mark(self, uid: str) -> bool:
        """Take note that something else has changed of the tree that has this UID.

        Returns whether there is one.
        """
        node = self._nodes.get(uid)
        if node is not None:
            self._mark(node)
        return node is not None

    def _look_up(self, node: TreeNode) -> None:
        found = self._find(node.reference)
        if isinstance(found, Missing):
            node.owner, node.missing = None, found
            self._hang(node, None)
            return
        node.owner, node.missing = found, None
        above = controller_of(found.metadata.owner_references)
        namespace = found.metadata.namespace
        self._hang(node, reference_to(above, namespace) if above is not None else None)

    def _hang(self, node: TreeNode, above: Reference | None) -> None:
        """Make `above` the parent of `node`."""
        old = node.parent
        if (old.reference.uid if old is not None else None) == (above and above.uid):
            return
        if old is not None:
            del old.children[node.reference.uid]
            node.parent = None
            self._prune(old)
        if above is None:
            return
        parent = self._nodes.get(above.uid)
        if parent is None:
            parent = self._nodes[above.uid] = TreeNode(above)
            self._look_up(parent)
        if parent.root is node:
            return  # owner references in a circle: nothing is above
        node.parent = parent
        parent.children[node.reference.uid] = node

    def _prune(self, node: TreeNode) -> None:
        """Forget `node` and those above it that have nothing below."""
        while node.pod is None and not node.children:
            uid, parent = node.reference.uid, node.parent
            del self._nodes[uid]
            self._forget(uid)
            if parent is None:
                return
            del parent.children[uid]
            node = parent

    def _mark(self, node: TreeNode) -> None:
        self._changed[node.root.reference.uid] = None
