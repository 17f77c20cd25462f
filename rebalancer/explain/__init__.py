"""``explain``: what is seen in one pod, node or workload, and what the plan of a dry run does with it.

There is no second logic here: the plan is made by what ``run --dry-run`` makes it by, and looked at before and
after its moves.
"""
