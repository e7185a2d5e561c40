"""Level 1: maximum inner product search, one contract for every kind."""
