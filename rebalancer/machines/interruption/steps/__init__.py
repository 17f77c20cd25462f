"""The built-in steps, registered as entry points like any other."""
