"""Upstream's PodGroups and CompositePodGroups, group scheduling.k8s.io, as PodGroups of ours. Pure.

One adapter a version reads them into `model`; `planning` makes our PodGroups from that, and
`reports` the conditions that go back.
"""
