"""The pages of README and docs as a site, built by mkdocs."""
