"""Matrix products: which calls are some, who makes them, by which forms."""
