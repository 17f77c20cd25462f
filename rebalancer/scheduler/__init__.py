"""Where kube-scheduler will put a pod: its default profile as vectorised arithmetic over all nodes.

The plug-ins, their order, weights and integer divisions are those of ``k8s.io/kubernetes/pkg/scheduler``,
so feasible sets and scores are equal to the real ones, not close to them. One file per plug-in or small
family of plug-ins; ``model.py`` puts them together.
"""
