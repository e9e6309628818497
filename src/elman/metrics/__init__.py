"""Metrics: how well predictions agree with the truth, in plain Python and numpy."""
