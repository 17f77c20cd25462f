"""``explain``: one pod, node or workload in the plan of a dry run.

The plan is made by the same code as in ``run --dry-run``; the terms of its cost are read before and after its
moves.
"""
