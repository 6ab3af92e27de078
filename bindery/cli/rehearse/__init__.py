"""The commands that play the future in memory: `whatif`, `simulate`."""
