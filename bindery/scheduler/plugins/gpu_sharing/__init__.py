"""gpu_sharing: shares of GPUs, with the plugin and the ledger of devices."""
