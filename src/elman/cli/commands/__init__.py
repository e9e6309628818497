"""One file a command: its options and its work; what is slow to import is imported when it runs."""
