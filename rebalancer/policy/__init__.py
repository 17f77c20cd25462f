"""The policy file: ``model`` has its models, ``load`` reads files into them, ``forms`` writes them again.

This package knows nothing about clusters, and of strategies only their ``Params``.
"""
