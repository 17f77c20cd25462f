"""``serve``: a process that follows the cluster and performs run after run on its current state."""
