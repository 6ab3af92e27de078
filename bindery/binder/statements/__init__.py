"""The known Statements, and the decision when each is executed."""
