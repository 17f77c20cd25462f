"""Convert a policy of the descheduler (kubernetes-sigs/descheduler) into one of ours, with notes on differences.

``source`` finds the policy in a file, with ``helm`` for values of its chart and ``v1alpha1`` for its old format; ``plugins``
are its models; ``uses`` collects the notes and lists the plug-ins in use; ``options`` and ``pods`` convert each part;
``merge`` makes one policy of the parts and writes it.

Two rules decide where the two differ. Keys of the file are carried over; absent keys take our default, with a note
where that is stricter. If a limit cannot be expressed here, the strategies that it limited only observe, so that no
pod is moved that was protected before.
"""
