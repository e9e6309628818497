"""Layers: cells walked over sequences, stacked, in both directions, with regularisers."""
