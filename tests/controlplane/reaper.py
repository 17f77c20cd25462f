"""Run as a script beside a control plane: when its parent has ended, it kills the remaining processes.

The parent writes "+PGID" and "-PGID" lines to our standard input for process groups that start and
end, and "rm PATH" for a directory to remove. However the parent ends, SIGKILL
included, the input ends with it. Standard library only, so that it starts in no time.
"""

import contextlib
import os
import shutil
import signal
import sys


def main() -> None:
    """Read until the parent has ended, then kill and clean up."""
    # Ctrl-C reaches the whole terminal's group; the parent is to tidy up first.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    groups: set[int] = set()
    folders: list[str] = []
    for line in sys.stdin:
        order = line.rstrip("\n")
        if order.startswith("rm "):
            folders.append(order[3:])
        elif order.startswith("+"):
            groups.add(int(order[1:]))
        else:
            groups.discard(int(order[1:]))
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
