"""The objects of the API server as structs, and the rules that depend on one object alone."""
