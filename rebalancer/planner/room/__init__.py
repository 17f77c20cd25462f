"""Make room for waiting pods: which pods leave, in which order, and why some waiting pods get no room."""
