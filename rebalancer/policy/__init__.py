"""What the user wants: the policy file, its models, and how it is read.

``model`` holds the shapes, ``load`` reads files into them, ``forms`` prints them again. This package
knows nothing of clusters, and of strategies only their ``Params``.
"""
