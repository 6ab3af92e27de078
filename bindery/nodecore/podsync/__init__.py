"""What a kubelet decides about the containers of a pod: what to start and stop, and its status."""
