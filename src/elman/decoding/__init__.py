"""Decoding strategies, one a file: the file's name is the strategy's name in a config."""

SHARED = ("base", "candidates", "draws", "ensemble", "processors", "results", "rows")  # files that are none
