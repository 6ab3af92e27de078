"""Answers about a cluster as data: the reason why a gang waits, the shares of queues, the outcome
of a plan.

The commands explain, get, queues, status and whatif write them as text. Input is a snapshot of the
cluster, or a few reads of a client; output is dataclasses and their JSON form. This package does
not depend on options, terminals or the user's files.
"""
