"""The API server: versioned objects, with lists in pages, watches and HTTP."""
