"""The built-in steps, installed as entry points like any other."""
