"""Coverage-guided fuzzing of what reads bytes that others wrote, and of the compiled core (`make fuzz`)."""
