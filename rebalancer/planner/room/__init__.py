"""Make room for pods that wait: who leaves, in which order, and why some stay outside."""
