"""Level 4: generations of the index: embed, build, publish, adopt."""
