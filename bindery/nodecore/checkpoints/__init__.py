"""The kubelet's checkpoint files: formats, checksums, and the store that holds them."""
