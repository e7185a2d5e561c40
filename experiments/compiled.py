"""Compiled programs kept on disk, for commands whose processes compile the same ones again and again."""

from __future__ import annotations

from pathlib import Path


def keep_compiled(folder: Path, seconds: float) -> None:
    """Keeps programs that took `seconds` or more to compile in `folder`, unless the user chose a place."""
    import jax

    if jax.config.jax_compilation_cache_dir is None:
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", seconds)
