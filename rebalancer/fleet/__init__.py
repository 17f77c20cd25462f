"""Fleets and recorded snapshots: record them, compare and tune policies on them by simulation, run on many clusters."""
