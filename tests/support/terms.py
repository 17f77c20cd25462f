"""Terms of the cost for tests that are about something else."""

import numpy as np

from rebalancer.api import Candidates, Term


class NeutralTerm(Term):
    """A term that asks for nothing: tests derive from it what they need."""

    def potential(self):
        return 0.0

    def violated(self):
        return 0

    def candidates(self, classes=None):
        return Candidates.none()

    def delta(self, cls, node, replacement, destinations):
        return np.zeros(len(destinations))

    def describe(self, cls, node):
        return ""
