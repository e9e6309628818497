"""What a token is, one unit a file: the file's name is the unit's name in a config."""
