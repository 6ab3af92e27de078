"""`bindery explain`: `command` has the options, `answer` reads the cluster and prints."""
