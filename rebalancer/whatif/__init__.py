"""Simulate run after run offline: plan on a snapshot, place the pods by the scheduler model, plan again."""
