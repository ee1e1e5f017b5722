"""Loops of the emitted forward: over the items of a list of modules, and over turns."""
