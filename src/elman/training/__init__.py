"""Training: optimisers and their schedules, averages of weights, checkpoints that survive a crash."""
