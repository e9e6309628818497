"""Networks between vectors and heads, one a file: the file's name is the network's name in a config."""
