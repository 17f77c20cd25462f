"""Servers of the tests that stand for parts of AWS, written from its documents, and tests on them."""
