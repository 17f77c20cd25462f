"""What a run tells: the report in four forms, and progress while it acts.

``model`` is what there is to tell, ``words`` how it is put, ``as_*`` the forms; ``render`` chooses among
them. Nothing here decides anything.
"""
