"""The embedded cluster: a small Kubernetes on loopback, in this process, and the demo that runs on it.

``apiserver`` stores objects and serves HTTP, ``controllers`` has the controllers, the scheduler loop and
the kubelets, ``cluster`` starts both, ``demo`` is ``rebalancer demo``. The contract tests check that it
behaves as Kubernetes does: they run against a real control plane, too.
"""
