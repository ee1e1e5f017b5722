"""The inputs that a pair is tried on."""
