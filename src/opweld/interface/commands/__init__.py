"""Commands that are more than a call of the line: each with its arguments."""
