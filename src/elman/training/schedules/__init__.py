"""Schedules of the learning rate, one a file: the file's name, with hyphens, is its name in a config."""

HYPHENS = True
