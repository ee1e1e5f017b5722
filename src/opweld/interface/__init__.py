"""What a person types and sees: the command line, progress, tables."""
