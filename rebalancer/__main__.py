"""``python -m rebalancer`` and the console scripts."""

from __future__ import annotations

from rebalancer.base.early_signals import leave_at_signals

leave_at_signals()

import gc  # noqa: E402  # what takes time comes after
import logging  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402

_YOUNG = 50_000
"""Number of new objects after which the garbage collector runs, instead of 700: nearly all objects that are created while
modules are imported and a cluster is read are kept, and repeated collections took a tenth of that time."""

_UNUSED = {"OPENBLAS_NUM_THREADS": "1", "PYDANTIC_DISABLE_PLUGINS": "__all__"}
"""Set for packages before they are imported, unless the user has set something else: numpy's linear
algebra would start a thread per core with a stack of its own, for products of a few hundred numbers;
pydantic would search all installed packages for plug-ins to run in our process."""


def main() -> None:
    """Run the command line and exit with its code."""
    gc.set_threshold(_YOUNG, 20, 50)
    for name, value in _UNUSED.items():
        os.environ.setdefault(name, value)
    from rebalancer.base.output import open_closed_streams  # noqa: PLC0415

    open_closed_streams()
    # What libraries log is said by our own errors, in words that hold no secret and no control characters.
    logging.getLogger().addHandler(logging.NullHandler())
    # Nothing is imported before it is needed.
    from rebalancer.base.environment import ignore_termination  # noqa: PLC0415
    from rebalancer.cli import command  # noqa: PLC0415
    from rebalancer.commands.call import say_stopped  # noqa: PLC0415

    try:
        code = command(sys.argv[1:], sys.argv[0])
        ignore_termination()
    except KeyboardInterrupt:
        # After the command's own end.
        code = say_stopped()
    # The interpreter would go through all objects once more for cycles to take apart, before it ends.
    gc.freeze()
    sys.exit(code)


def kubectl_completion() -> None:
    """Answer kubectl, which starts ``kubectl_complete-rebalancer`` for a shell."""
    from rebalancer.base.early_signals import COMPLETE_VARIABLE  # noqa: PLC0415
    from rebalancer.base.output import OutputError  # noqa: PLC0415
    from rebalancer.cli import main as root  # noqa: PLC0415
    from rebalancer.commands.completion import complete_for_kubectl  # noqa: PLC0415

    os.environ.setdefault(COMPLETE_VARIABLE, "kubectl_complete")
    try:
        complete_for_kubectl(root, sys.argv[1:])
    except OutputError:
        # A prompt is no place for messages.
        sys.exit(2)


if __name__ == "__main__":
    main()
