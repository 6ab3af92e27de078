"""Carries out one Statement."""
