"""What is known of the user's modules beside their operations."""
