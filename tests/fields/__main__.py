"""Writes fields.txt anew from the source of each Kubernetes version: `python -m tests.fields`."""

import sys

from tests import fields
from tests.controlplane.build import VERSIONS, openapi


def main() -> None:
    """Read the schema of each version, and say what has no verdict yet."""
    fields.write({fields.minor(version): openapi(version) for version in VERSIONS})
    for field in fields.read():
        if field.verdict not in fields.VERDICTS:
            sys.stdout.write(f"no verdict: {field.name}\n")


if __name__ == "__main__":
    main()
