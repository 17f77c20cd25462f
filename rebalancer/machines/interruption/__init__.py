"""What is done when a machine will go: a pipeline of named steps, each with its part of the time that is left."""
