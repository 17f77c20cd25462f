"""A real Kubernetes control plane on loopback, built from Go modules, with KWOK as its kubelets.

`ControlPlane` starts it, `objects` writes manifests for it, `drift` puts it into a drifted state.
`python -m tests.controlplane up` leaves one running to play with.
"""

from tests.controlplane.api import ApiClient, ApiError
from tests.controlplane.build import GroundError
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.options import Options
from tests.controlplane.waiting import wait_until

__all__ = ["ApiClient", "ApiError", "ControlPlane", "GroundError", "Options", "wait_until"]
