"""Records on nodes by the components that want them cordoned, and the rules by which a cordon is removed or handed over."""
