"""Nodes that Karpenter itself adds and removes on the real control plane."""
