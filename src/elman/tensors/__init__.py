"""Helpers that know tensors only: checks, rows of padded batches, states."""
