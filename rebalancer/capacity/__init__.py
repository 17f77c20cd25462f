"""Machines: which nodes can be removed, and which groups have to be increased for the pending pods."""
