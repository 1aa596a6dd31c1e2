"""The command line `loopstore`, which is a part of the package."""

from __future__ import annotations

import signal
import sys

from loopstore import _loopstore


def main() -> None:
    """Run the command line with the arguments of the process, and exit with its code."""
    # Python's own handler would wait for the end of the command.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_loopstore.run_command(["loopstore", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
