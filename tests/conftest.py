"""Test-wide settings: eight virtual CPU devices for the mesh tests, and a compile cache that survives runs."""

import os
import tempfile
from pathlib import Path

import jax

CACHE = Path(tempfile.gettempdir()) / f"realm-jax-cache-{os.getuid()}"
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
