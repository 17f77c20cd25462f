"""One file per command: what it does, in the order in which it does it."""
