"""Logs, health and metrics of every Bindery process. Imports nothing of Bindery."""
