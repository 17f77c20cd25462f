"""``python -m rebalancer`` and the console scripts."""

from __future__ import annotations

import gc
import sys

_YOUNG = 50_000
"""Objects after which the collector of cycles looks for some, instead of 700: nearly all that is made while
modules are imported and a cluster is read stays, and looking again and again took a tenth of that time."""


def main() -> None:
    """Run the command line and exit with its code."""
    gc.set_threshold(_YOUNG, 20, 50)
    from rebalancer.cli import command  # noqa: PLC0415  # nothing is imported before it is needed

    sys.exit(command(sys.argv[1:]))


if __name__ == "__main__":
    main()
