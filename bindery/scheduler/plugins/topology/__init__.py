"""topology: racks, blocks and HyperNodes, for gangs whose pods must or should be close together."""
