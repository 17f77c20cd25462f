"""``python -m rebalancer`` and the console scripts."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys

_YOUNG = 50_000
"""Objects after which the collector of cycles looks for some, instead of 700: nearly all that is made while
modules are imported and a cluster is read stays, and looking again and again took a tenth of that time."""

_UNUSED = {"OPENBLAS_NUM_THREADS": "1", "PYDANTIC_DISABLE_PLUGINS": "__all__"}
"""Set for packages before they are imported, unless the user has set something else: numpy's linear
algebra would start a thread per core with a stack of its own, for products of a few hundred numbers;
pydantic would search all installed packages for plug-ins to run in our process."""


def main() -> None:
    """Run the command line and exit with its code."""
    # Until a command has its own way to stop, Ctrl-C ends the process at once and without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.set_threshold(_YOUNG, 20, 50)
    for name, value in _UNUSED.items():
        os.environ.setdefault(name, value)
    from rebalancer.base.output import open_closed_streams  # noqa: PLC0415

    open_closed_streams()
    # What libraries log is said by our own errors, in words that hold no secret and no control characters.
    logging.getLogger().addHandler(logging.NullHandler())
    from rebalancer.cli import command  # noqa: PLC0415  # nothing is imported before it is needed

    code = command(sys.argv[1:], sys.argv[0])
    # The interpreter would go through all objects once more for cycles to take apart, before it ends.
    gc.freeze()
    sys.exit(code)


if __name__ == "__main__":
    main()
