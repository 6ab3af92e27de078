"""Histories: the whole system in one thread on a virtual clock; one seed is one history."""
