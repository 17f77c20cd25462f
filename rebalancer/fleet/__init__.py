"""Questions over many snapshots: which policy would have been best, judged by simulations on each of them."""
