"""The cost of a placement, as the sum of terms that strategies define.

It is a tuple compared left to right: hard violations, soft violations (both in pods that still have to move),
imbalance (squared deviation). This package does not choose moves and does not act.
"""
