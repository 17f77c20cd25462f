"""Cluster API's own controllers on the real control plane, which is management and workload cluster in one."""
