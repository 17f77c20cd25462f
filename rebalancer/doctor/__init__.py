"""Check what a cluster and a policy need before a run, and what prevents moves; without making a plan."""
