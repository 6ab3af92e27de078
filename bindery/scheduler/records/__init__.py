"""Records that the leading scheduler keeps in ConfigMaps: past usage, and the history."""
