"""What makes the cluster live: controllers, kubelets, and the scheduler's loop."""
