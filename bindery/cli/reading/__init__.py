"""How the commands read a cluster or a scenario, once, into a snapshot."""
