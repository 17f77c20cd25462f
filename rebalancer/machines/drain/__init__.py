"""Drain: empty the nodes that a user names. Decide which pods leave, what to wait for, and what forbids it."""
