"""What a run reports: the report in four forms, and progress while it acts.

``model`` is the data, ``words`` how it is put, ``as_*`` the forms; ``render`` chooses among
them. Nothing here decides anything.
"""
