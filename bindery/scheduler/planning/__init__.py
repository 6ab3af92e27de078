"""Planning of one cycle: the session, its Statements, placement and reports."""
