"""image_policy: an example of plugins for Bindery, installed as a package of its own."""
