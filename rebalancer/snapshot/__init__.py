"""The state of a cluster as arrays: only this package converts names into integers.

Axes: N nodes, P pods, C classes (pods with equal scheduling requirements), R resources, W owners (top controllers),
B PodDisruptionBudgets. Index arrays are int32, amounts int64 in base units (milli-cores, bytes), scores float64.
There is never a dense P x N or C x N matrix.
"""
