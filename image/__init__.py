"""How the image is made beyond its base: a root directory, and an OCI archive of it."""
