"""The candidate's process and the one that judges: frames, limits, ends."""
