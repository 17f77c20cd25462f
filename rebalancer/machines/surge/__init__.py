"""Replacements that bring machines of their own: groups grow by some machines before old ones are emptied and ended."""
