"""Planning of one cycle: the session, its Statements, placement and what is reported of them."""
