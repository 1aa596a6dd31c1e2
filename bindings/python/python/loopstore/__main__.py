"""`python -m loopstore` runs the command line."""

from loopstore._command import main

main()
