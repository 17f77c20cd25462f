"""Signals: somebody says that a node will go, and by when."""
