"""Signals: announcements that a machine will be interrupted, with a deadline."""
