"""A look at a user's data before training: what is read, and what is wrong or strange about it."""
