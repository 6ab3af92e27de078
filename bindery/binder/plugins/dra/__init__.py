"""dra: allocates and reserves the resource claims of pods during binding."""
