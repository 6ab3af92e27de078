"""volumes: persistent volumes in planning.

`catalog` has the objects, `matching` finds volumes for claims, `nodeindex` the nodes with access to
them. `attachments` counts attached volumes, `ledger` has the choices of a session, and `plugin`
connects these modules.
"""
