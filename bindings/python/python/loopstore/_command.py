"""The command line `loopstore`, which comes along with the package."""

from __future__ import annotations

import signal
import sys

from loopstore import _loopstore


def main() -> None:
    """Run the command line with the arguments of the process, and exit with its code."""
    # Python's own handler would wait until the command is done.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_loopstore.run_command(["loopstore", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
