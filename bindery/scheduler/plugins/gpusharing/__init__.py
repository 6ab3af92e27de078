"""gpusharing: GPU shares, with the plugin and the ledger of devices."""
