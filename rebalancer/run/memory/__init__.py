"""What earlier runs did and the outcome of it: a small document that the planner is warned by.

Everything but ``store`` is a pure function of documents; losing one costs a little patience, and the counters
of metrics begin anew.
"""
