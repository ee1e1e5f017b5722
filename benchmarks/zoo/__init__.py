"""Models of many fields, as people write them: what opweld makes of each, and how fast it is."""
