"""The built-in strategies, one file each, found by entry point exactly as anybody else's."""
