"""Fleets and recorded snapshots: record them, compare policies on them by simulation, run on many clusters."""
