"""Machine providers: the contract of provider plug-ins, and node groups derived from labels."""
