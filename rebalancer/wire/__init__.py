"""Data as the API server spells it: narrow structs and quantities. No I/O, no arrays."""
