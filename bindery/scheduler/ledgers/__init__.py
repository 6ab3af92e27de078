"""Ledgers: the accounts of resources that a Statement updates, and restores when it is undone.

The ledger of each resource, and its owner:

    resource                            ledger                          offered by
    CPU, memory, pods, whole GPUs as    ledgers.nodes.NodeLedger        the session
      sums, any extended resource
    quotas, limits, queue amounts       ledgers.queues.QueueLedger      the session
    what users hold in a queue          ledgers.users.UserLedger        the session
    GPUs one by one, parts of them      plugins.gpusharing.ledger       plugin gpusharing
    devices that HAMi shares            plugins.hami.ledger             plugin hami
    claims of DRA and their devices     plugins.dra.ledger              plugin dra
    NUMA zones of nodes                 plugins.numa.ledger             plugin numa
    volumes and attachments             plugins.volumes.ledger          plugin volumes
    host ports                          plugins.hostports               plugin hostports
    exclusive topology domains          plugins.topology.exclusive      plugin topology
    pods that affinity selects, by      plugins.podaffinity.ledger      plugin podaffinity
      domain
    pods of spread constraints, by      plugins.topologyspread.ledger   plugin topologyspread
      domain

A resource that is a sum per node needs no ledger of its own: the node ledger counts every name. If
it matters *which* part a pod gets, a plugin offers a ledger (plugins/interface/state.py). `base`
has the Protocol.
"""
