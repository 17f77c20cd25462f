"""The only package that talks to the API server.

``client`` (bytes, time-outs, retries) on ``credentials`` · ``read`` and ``capture`` (a whole cluster) · ``watch``
(changes) · ``evict``, ``events``, ``config_map``, ``lease`` (what a run writes) · ``access`` and ``failures``
(missing rights, and what to do about them).
"""
