"""Whether a pod may run on the node: the kubelet's checks in its order, with its reasons."""
