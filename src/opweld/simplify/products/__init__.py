"""Products of a value with a matrix, and what is done to their results."""
