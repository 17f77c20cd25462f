"""The version of the report's data."""

from rebalancer import API_VERSION

__all__ = ["API_VERSION"]
