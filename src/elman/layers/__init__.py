"""Layers: cells unrolled over sequences, stacked, in both directions, with regularisers."""
