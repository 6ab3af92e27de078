"""HAMi's wire protocol: annotations, device strings, the node lock and one row a vendor.

Used by the scheduler, which plans devices, and by the binder, which writes them. Facts about the
protocol are those of HAMi v2.10.0; other versions are named where they differ. No I/O. Malformed
text raises only `HamiFormatError`.
"""
