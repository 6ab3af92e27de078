"""gpusharing: hands shares of GPUs to pods on clusters with the stock device plugin.

KAI-Scheduler's protocol (v0.17, pkg/binder/binding/resourcereservation and plugins/gpusharing). One
reservation pod a GPU group asks the device plugin for a whole device and writes down which one it
got; the users of the group are told that device by a ConfigMap that their environment refers to.
`plugin` is the door; `reservations` keeps reservation pods, `users` knows who uses them,
`handover` writes what containers read, `admission` is the webhook's part.
"""
