"""The short form of the decisions benchmark: one small drift, ours beside the peer and a proven optimum."""

import pytest

pytest.importorskip
