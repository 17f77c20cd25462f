"""A release: its files from one commit, reproducibly, and the proof that each of them can be installed."""
