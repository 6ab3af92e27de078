"""Volumes of CSI drivers: calls to their node service, and the files that the kubelet keeps."""
