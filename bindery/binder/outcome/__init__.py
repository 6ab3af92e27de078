"""Outcomes of Statements and pods, and what limits and outlives them."""
