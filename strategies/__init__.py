"""The built-in strategies, one file each, registered by entry point like third-party ones."""
