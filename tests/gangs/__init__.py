"""LeaderWorkerSets and JobSets of their own controllers on the real control plane."""
