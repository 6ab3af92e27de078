"""Gangs that other schedulers' tools have marked: KAI-Scheduler, Volcano and Kueue. Pure."""
