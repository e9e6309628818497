"""Readers of files, one a file: the file's name is the format's name in a config."""
