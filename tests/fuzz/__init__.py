"""Coverage-guided fuzzing of what reads bytes that others wrote (`make fuzz`)."""
