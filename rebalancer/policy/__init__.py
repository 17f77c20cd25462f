"""The policy file: ``model`` defines its models, ``load`` reads files into them, ``forms`` writes them.

This package knows nothing about clusters, and of strategies only their ``Params``.
"""
