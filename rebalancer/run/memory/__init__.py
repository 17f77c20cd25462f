"""The memory of earlier runs: a small document about their moves and outcomes, used by the planner.

Everything but ``store`` is a pure function of documents. If the document is lost, back-offs and the counters of
metrics start again.
"""
