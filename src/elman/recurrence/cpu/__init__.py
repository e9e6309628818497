"""The CPU backend: a kernel generated from the equations, compiled once, run on torch's threads."""
