"""Signals: announcements that a machine will go, and by when."""
