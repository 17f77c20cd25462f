"""Handle interruptions of machines by a pipeline of named steps, each with its part of the remaining time."""
