"""Cells, one a file: the file's name is the cell's name in a config."""
