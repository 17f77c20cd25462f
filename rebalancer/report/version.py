"""The version of everything that this package writes as data, and reads again."""

API_VERSION = "rebalancer/v1"
