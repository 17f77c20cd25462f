"""Convert a policy of the descheduler (kubernetes-sigs/descheduler) into one of ours, with notes on differences.

``source`` reads the policy from a file and collects the notes; ``peer`` and ``plugins`` are its models; ``uses``
lists the plug-ins in use, for both versions of its format; ``options``, ``pods`` and ``usage`` convert each part;
``merge`` makes one policy of the parts and writes it.

Two rules decide where the two differ. Keys of the file are carried over; absent keys take our default, with a note
where that is stricter. If a limit cannot be expressed here, the strategies that it limited only observe, so that no
pod is moved that was protected before.
"""
