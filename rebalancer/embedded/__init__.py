"""The embedded cluster: a small Kubernetes on loopback, in this process, and the demo that runs on it.

``apiserver`` holds objects and speaks HTTP, ``controllers`` does what controller manager, scheduler and
kubelets do, ``cluster`` puts both together, ``demo`` tells the story. What it claims of Kubernetes'
behaviour is checked by the contract tests, which run against a real control plane, too.
"""
