"""Tasks: what is read, what is learned from it, how it is judged and used; one file a task."""
