"""Poolings, one a file: the file's name is the pooling's name in a config."""
