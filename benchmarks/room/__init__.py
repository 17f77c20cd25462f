"""Room for pods that wait, on random clusters, beside an integer programme."""
