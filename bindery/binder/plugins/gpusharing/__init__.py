"""gpusharing: gives shares of GPUs to pods on clusters with the vendor's device plugin.

KAI-Scheduler's protocol (v0.17, pkg/binder/binding/resourcereservation and plugins/gpusharing). For
each GPU group, one reservation pod requests a whole device from the device plugin and writes the
device's name into an annotation. The users of the group get the name from a ConfigMap to which
their environment refers. `plugin` is the entry point; `reservations` manages reservation pods,
`users` finds their users, `handover` writes the ConfigMaps, `admission` is the webhook's part.
"""
