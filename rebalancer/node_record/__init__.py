"""What stands on a node of those who want it closed, and what becomes of a cordon when one of them lets go."""
