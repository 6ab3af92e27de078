"""What pods need beside cores and GPUs: volumes, devices, HAMi's cards, later stages, racks.

`plans` draws it, `bodies` writes it into pods and PodGroups, a module for each plays those who
answer in a cluster, and `judge` and `rest` have the promises about it.
"""
