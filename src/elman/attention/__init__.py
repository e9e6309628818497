"""Attention scores, one a file: the file's name is the score's name in a config."""
