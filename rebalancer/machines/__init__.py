"""Machines: empties, adds and removes them. Nothing of a run that only moves pods knows it, or loads it."""
