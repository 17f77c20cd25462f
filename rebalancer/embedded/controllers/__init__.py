"""The control loops: controllers, kubelets, and the scheduler."""
