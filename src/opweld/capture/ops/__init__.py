"""ATen's operators in our operations: one row per operator, by kind."""
