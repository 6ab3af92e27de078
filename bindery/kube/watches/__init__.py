"""Mirrors of all objects of a kind, kept by list and watch."""
