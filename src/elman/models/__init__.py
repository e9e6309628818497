"""Models: what tasks build from layers: heads over the outputs of a network, and their losses."""
