"""Outcomes of Statements and pods, with limits on concurrency and retention of finished
requests.
"""
