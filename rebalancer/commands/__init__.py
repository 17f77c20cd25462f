"""One file per command: its flags, one call, and its exit code."""
