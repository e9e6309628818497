"""Tools that look inside a trained network: gradients through time, probes of memory, and attention."""
