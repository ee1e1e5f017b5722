"""What outputs do not need is not computed."""
