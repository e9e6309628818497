"""Several networks under one budget, with several seeds: which is better, as far as the figures say."""
