"""`python -m opweld` is the command line."""

from opweld.cli import main

main()
