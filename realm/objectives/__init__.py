"""Level 2: what is learned: one file per objective."""
