"""The machine provider ``cluster-api``: MachineDeployments and MachineSets of Cluster API as node groups."""
