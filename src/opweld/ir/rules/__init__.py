"""Rules over graphs as data."""
