"""Turns a policy of the descheduler (kubernetes-sigs/descheduler) into one of ours, and says what differs.

``source`` finds the policy in a file, ``peer``, ``evictor`` and ``plugins`` are its shape, ``uses`` reads it into
plug-ins in use (``v1alpha1`` from its old form), ``options``, ``protections``, ``scope`` and ``budgets`` give each part its
equivalent here, ``merge`` puts them together, ``write`` prints the result. ``command`` is ``policy migrate``.

Two rules decide where the two differ. What the file says is carried over; what it leaves open takes our default,
and where that is stricter, a note says so. A limit that cannot be expressed here makes what it limited observe
only, so that no pod is moved that was protected before.
"""
