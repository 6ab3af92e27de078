"""A device plugin for shares of NVIDIA GPUs, by HAMi's protocol.

`process` starts everything; `plugin` answers the kubelet; `handshake` completes HAMi's handshake
with the binder; the other modules decide, and are pure. Limits of memory and cores hold in a
container only where HAMi-core's library is on the node: this plugin asks it, and isolates nothing
by itself.
"""
