"""Machines: empty, add and remove them. Runs that only move pods never import this package."""
