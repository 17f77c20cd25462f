"""Whole runs of the installed command on a real control plane, while requests and the world go wrong.

A seed gives a scenario (`schedule`): which requests fail and how (`faults`, `proxy`), and what else happens
(`world`). Witnesses that share no code with the product (`witnesses`) record what was done, and `invariants`
judges it. `python -m tests.storm --seeds 0-19`.
"""
