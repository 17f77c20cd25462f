"""The report of a run in all its forms, and the progress of a run.

``model`` has the reported data, ``changes`` computes what the moves change, ``summary`` puts both into words and
numbers. ``as_*`` write the forms, ``render`` chooses one; ``schema`` describes the JSON. ``metrics`` and ``notices``
send a report to other systems after the run. This package makes no decisions.
"""
