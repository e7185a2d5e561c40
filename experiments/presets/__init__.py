"""Presets: run cards, in files of their own. `PRESETS` maps a name to the function that returns its config."""

from experiments.presets import base, facts, sample, squad_open, tiny

PRESETS = {"tiny": tiny.preset, "sample": sample.preset, "facts": facts.preset, "base": base.preset}
PRESETS |= {"squad_open": squad_open.preset, "tiny_open": squad_open.tiny}


def card(name: str) -> str:
    """The first line of a preset's run card: cost and content."""
    return PRESETS[name].__doc__.strip().splitlines()[0]
