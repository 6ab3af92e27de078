"""Reads a cluster or a scenario once, into a snapshot."""
