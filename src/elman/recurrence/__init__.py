"""The engine: unrolls a cell over time on one of several backends, all equal in values and gradients."""
