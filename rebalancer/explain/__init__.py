"""``explain``: how the plan of a dry run treats one pod, node or workload.

The plan is made by the same code as in ``run --dry-run``; the terms of the cost are evaluated before and after the
moves.
"""
