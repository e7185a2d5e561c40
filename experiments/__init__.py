"""Level 5: presets, the command line, reports. Nothing imports it."""
