"""Objects of other schedulers as objects of Bindery, for `bindery migrate`. Pure."""
