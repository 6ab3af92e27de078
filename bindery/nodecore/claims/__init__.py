"""The DRA manager: drivers prepare resource claims before the containers of a pod start."""
