"""Optimisers, one a file: the file's name is the optimiser's name in a config."""
