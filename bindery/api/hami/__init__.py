"""HAMi's wire protocol: annotations, device strings, the node lock and one row a vendor.

Read by the scheduler, which plans the devices, and by the binder, which writes what was planned.
Facts about the protocol are those of HAMi v2.10.0 and, where they differ, of the versions named at
each place. Nothing here does I/O, and malformed text raises `HamiFormatError` and nothing else.
"""
