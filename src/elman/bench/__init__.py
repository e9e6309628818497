"""``elman bench``: the engine beside ``torch.nn`` on this machine, in one run."""
