"""The state of a cluster as arrays: names become integers here and only here.

Axes, once and for all: N nodes, P pods, C classes (pods alike in all that matters to scheduling),
R resources, W owners (top controllers), B PodDisruptionBudgets. Index arrays are int32, amounts int64 in
base units (milli-cores, bytes), scores float64. There is never a dense P x N or C x N matrix.
"""
