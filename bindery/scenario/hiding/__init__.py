"""Snapshots without names.

`hidden` is the entry, and `hider` the walk over the objects: each text is a word and gets a
pseudonym (`pseudonyms`), with exceptions by field (`rules`) and by the keys of labels and
annotations (`texts`). Names behind patterns and fingerprints are found by `named_sets`.
"""
