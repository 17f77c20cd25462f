"""low-utilisation: its options, its term by requests, and its term by measured usage."""
