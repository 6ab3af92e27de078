"""Simulations: a trace of jobs, played through the scheduler's engine on a virtual clock."""
