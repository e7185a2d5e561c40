"""The one door to PyTorch: the tensors of a pytorch_model.bin, for folders that have no safetensors."""

from __future__ import annotations

from pathlib import Path
from pickle import UnpicklingError

import numpy as np

from realm.models.weights.report import WeightsError


def read_pickled(path: Path) -> dict[str, np.ndarray]:
    """Every tensor of the file, 16-bit floats as float32. Code inside the pickle is never run (weights_only).

    Raises WeightsError without PyTorch, and for a file that holds anything but tensors.
    """
    try:
        import torch
    except ImportError as error:
        raise WeightsError(
            f"{path} can be read with PyTorch only, and it is not installed: install the extra `torch` "
            "(pip install 'realm-pretraining[torch]'), or have the folder saved as model.safetensors"
        ) from error
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (UnpicklingError, RuntimeError, EOFError) as error:
        raise WeightsError(f"{path} is no file of tensors: {error}") from error
    if not isinstance(found, dict) or not all(isinstance(value, torch.Tensor) for value in found.values()):
        raise WeightsError(f"{path} holds a {type(found).__name__}, wanted a dict of tensors")
    return {name: (t.float() if t.is_floating_point() else t).numpy() for name, t in found.items()}
