"""Machines: which nodes can go, and which groups would have to grow for the pods that wait."""
