"""``serve``: a process that follows the cluster and makes run after run of what it knows."""
