"""The commands that read or write files: `scenario`, `snapshot`, `migrate`, `node`."""
