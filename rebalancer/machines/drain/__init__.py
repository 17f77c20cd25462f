"""Empties nodes that people order to be empty: what goes, what is waited for, what forbids it."""
