"""Helpers that know tensors only: checks, padded rows, nested states, large products, torch's modes."""
