"""Records on nodes by the components that want them cordoned, and the fate of a cordon when one of them lets go."""
