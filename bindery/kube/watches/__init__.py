"""Mirrors of all objects of a kind, updated by list and watch."""
