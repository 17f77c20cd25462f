"""Plays run after run offline: plan on a snapshot, let the scheduler model land the pods, plan again."""
