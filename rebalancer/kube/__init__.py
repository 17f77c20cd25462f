"""The API server, and nothing else: the only package that talks to it.

``client`` (bytes, time-outs, retries) on ``credentials`` · ``read`` and ``capture`` (a whole cluster) ·
``watch`` (what happens meanwhile) · ``evict``, ``events``, ``memory``, ``lease`` (what a run writes) ·
``access`` and ``failures`` (what is not allowed, and what to do about it). Nothing here deletes anything.
"""
