"""What tests of several packages share: clusters, clocks, terms."""
