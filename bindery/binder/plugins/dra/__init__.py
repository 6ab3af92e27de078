"""dra: allocates and reserves the resource claims of pods on their way to the node."""
