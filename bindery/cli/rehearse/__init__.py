"""The commands that predict in memory: `whatif`, `simulate`."""
