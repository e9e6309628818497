"""Files that last: written whole or not at all, verified when read, locked between processes."""
