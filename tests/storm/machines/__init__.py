"""Machines under fire: what ends machines and empties nodes, while the API server, the cloud and the world go wrong.

`python -m tests.storm.machines`. Scenarios are drawn by seed; witnesses are the cloud's own log of calls, the API
server's audit log, and raw watches of nodes, pods and the Lease. None of them uses code of the product.
"""
