"""A real node beside the simulated ones: kubelet, containerd, and the real image in a real pod."""
