"""`python -m opweld` is the command line."""

from opweld.interface.cli import main

main()
