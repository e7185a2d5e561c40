"""Sweeps by name. `SWEEPS` maps a name to the function that returns its Sweep."""

from experiments import facts_controls

SWEEPS = {"facts-controls": facts_controls.sweep}


def card(name: str) -> str:
    """What a sweep varies, in one line."""
    sweep = SWEEPS[name]()
    return f"{len(sweep.variants)} variants: {', '.join(sweep.variants)}"
