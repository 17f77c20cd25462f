"""The storm for machines on Cluster API's own controllers: `python -m tests.storm.machines --provider cluster-api`.

Groups are a MachineDeployment that waits for deletions and a MachineSet alone. What was done to them is read from raw watches of
Cluster API's objects; the faults are those of requests to the API server, among them those for these objects.
"""
