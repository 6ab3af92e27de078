"""Tests of a kubelet's side of the sockets."""
