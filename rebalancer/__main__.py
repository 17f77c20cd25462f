"""``python -m rebalancer`` and the console scripts."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    from rebalancer.cli import command  # noqa: PLC0415  # nothing is imported before it is needed

    sys.exit(command(sys.argv[1:]))


if __name__ == "__main__":
    main()
