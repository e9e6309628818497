"""Trained models as files that need no torch: one format a file, named as in ``elman export --to NAME``."""
