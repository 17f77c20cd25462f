"""The plan as data: moves, landings, outcomes; reports and runs share it."""
