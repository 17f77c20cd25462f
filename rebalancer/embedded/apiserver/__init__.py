"""The API server's part: objects with versions, watched, paged and served over HTTP."""
