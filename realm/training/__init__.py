"""Level 3: the one loop, its state, optimiser, checkpoints and metrics."""
