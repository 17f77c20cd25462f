"""The cost: what a placement is worth, as terms that strategies hand over.

A tuple compared left to right: hard violations, soft violations (both in pods that still have to move),
imbalance (squared deviation). Nothing here chooses or acts.
"""
