"""API objects as the server writes them: narrow structs and quantities. No I/O, no arrays."""
