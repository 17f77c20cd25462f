"""What holds for all tests: none of them fails because the machine does much else at once."""

import gc

import pytest
from hypothesis import HealthCheck, settings

from tests.controlplane.build import DEFAULT_VERSION

# Half of what Hypothesis draws by itself: what broke a property was found among the first few.
settings.register_profile(
    "any machine", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let tests on a real control plane run on another version of Kubernetes."""
    parser.addoption("--kubernetes", default=DEFAULT_VERSION, help="version of the control plane")


def pytest_collection_finish() -> None:
    """Collect cycles as rarely as the program does itself: nearly all that lives was made while tests were collected."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.fixture(scope="session")
def kubernetes(pytestconfig):
    """Return the version of Kubernetes to run on."""
    version: str = pytestconfig.getoption("kubernetes")
    return version
