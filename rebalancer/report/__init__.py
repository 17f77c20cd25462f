"""What a run says: the report in its forms, and progress while it acts.

``model`` is what there is to report, ``changes`` what the moves change, ``summary`` all of it in words and numbers;
``as_*`` the forms, among which ``render`` chooses; ``schema`` describes the JSON. Nothing here decides anything.
"""
