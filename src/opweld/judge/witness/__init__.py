"""What the referee sees of the candidate's process by itself, and that process's witness."""
