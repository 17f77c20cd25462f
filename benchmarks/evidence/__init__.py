"""The numbers of docs/evidence.md: each with its command, seeds, machine, interval, and the case where we lose."""
