"""Level 1: encoders, heads and weight import (flax.nnx)."""
