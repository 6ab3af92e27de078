"""Ledgers: what a Statement keeps in step with the plan, operation by operation, and takes back.

Which ledger a resource needs, and who offers it:

    resource                            ledger                          offered by
    CPU, memory, pods, whole GPUs as    ledgers.nodes.NodeLedger        the session
      sums, any extended resource
    quota, limit, what queues hold      ledgers.queues.QueueLedger      the session
    GPUs one by one, parts of them      plugins.gpu_sharing.ledger      plugin gpu_sharing
    devices that HAMi shares            plugins.node_lock.ledger        plugin node_lock
    claims of DRA and their devices     plugins.dra.ledger              plugin dra
    volumes and attachments             plugins.volumes.ledger          plugin volumes

A resource that is a sum per node needs no ledger of its own: the node ledger counts every name. One
of which it matters *which* part a pod gets needs a ledger, which a plugin offers
(plugins/interface.py). `base` has the Protocol.
"""
