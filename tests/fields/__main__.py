"""Writes fields.txt anew from the real API servers: `python -m tests.fields`."""

import sys

from tests import fields
from tests.controlplane import ControlPlane, Options
from tests.controlplane.build import VERSIONS


def main() -> None:
    """Ask an API server of each version, and say what has no verdict yet."""
    schemas = {}
    for version in VERSIONS:
        with ControlPlane(Options(version=version, components=("etcd", "kube-apiserver"))) as plane:
            schemas[fields.minor(version)] = plane.api.get(fields.PATH)
    fields.write(schemas)
    for field in fields.read():
        if field.verdict not in fields.VERDICTS:
            sys.stdout.write(f"no verdict: {field.name}\n")


if __name__ == "__main__":
    main()
