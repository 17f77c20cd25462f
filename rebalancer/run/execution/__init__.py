"""Execute a plan through the Eviction API, wave by wave. It never adds a move and never deletes a pod."""
