"""Which Statements there are, and when each is carried out."""
