"""Which pods of a job come next, in which domains, and the best of several plans for them."""
