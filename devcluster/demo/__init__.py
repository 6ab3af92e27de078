"""The demos of `make demo` and `make demo-real`: examples, their outcomes and the output."""
