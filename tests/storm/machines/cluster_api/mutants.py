"""Proof that the storm on Cluster API can fail: each mend is undone in a copy of the packages, and a seed must find it.

`python -m tests.storm.machines.cluster_api.mutants`. What is violated where the mend stands, too, does not count.
"""

import sys

from tests.storm import mutants
from tests.storm.machines.cluster_api.mends import MENDS
from tests.storm.machines.mutants import playing_on
from tests.storm.machines.play import CLUSTER_API

if __name__ == "__main__":
    program = "python -m tests.storm.machines.cluster_api.mutants"
    sys.exit(mutants.main(MENDS, playing_on(CLUSTER_API), program))
