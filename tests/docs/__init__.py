"""Writes the parts of README and docs that come from the code, and tests that all of both is true."""
