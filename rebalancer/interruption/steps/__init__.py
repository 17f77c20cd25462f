"""The built-in steps, found by entry point as any other."""
