"""Ledgers: everything that an operation of a Statement changes and a discard must restore."""
