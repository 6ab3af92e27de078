"""Executes one Statement."""
