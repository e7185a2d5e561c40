"""REALM-style retrieval-augmented language-model pretraining in JAX.

Levels, lowest first: `text` (numpy), `models` and `index` (jax), `objectives`, `training` and `evaluation`.
A package imports its own level or lower ones; see WORKSPACE.md.
"""
