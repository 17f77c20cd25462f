"""What a cluster and a policy need before a run, and what keeps runs from moving anything: checks without a plan."""
