"""How fast: clocks, rounds, baselines, limits."""
