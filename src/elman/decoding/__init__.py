"""Decoding strategies, one a file: the file's name is the strategy's name in a config."""
