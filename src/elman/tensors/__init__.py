"""Helpers that know tensors only: checks, rows of padded batches, large products, torch's modes."""
