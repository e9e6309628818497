"""Tasks: what is read, what is learned from it, how it is judged and used; one file a task."""

SHARED = ("base", "_generation", "_seq2seq", "_sides", "_words")  # files that are no task
