"""A model of kube-scheduler: its default profile as vectorised arithmetic over all nodes.

The plug-ins, their order, weights and integer divisions are those of ``k8s.io/kubernetes/pkg/scheduler``, so
feasible sets and scores equal the real ones. One file per plug-in or small family of plug-ins; ``model.py`` combines
them.
"""
