"""Sentence-transformers folders: mean-pooled BERT compared by cosine, as an encoder of ours without any loss.

Our towers end in projection and LayerNorm, theirs in L2 normalisation. The two are one where the projected vector has
mean 0, for LayerNorm is then x * sqrt(width) / |x|. So the D numbers of their vector are laid isometrically into the
D + 1 numbers that sum to 0: no inner product changes, and the gain of LayerNorm becomes the scale of the scores.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from realm.models.weights.report import WeightsError
from realm.models.weights.source import read_json
from realm.protocols import Params

# score = SCALE * cosine: what sentence-transformers multiplies by in its in-batch softmax, so such encoders know it.
SCALE = 20.0
# LayerNorm's epsilon for such towers: it would shrink short vectors, which L2 normalisation does not.
EPSILON = 1e-12


def isometry(width: int) -> np.ndarray:
    """float32 [D, D + 1] with orthonormal rows that each sum to 0 (Helmert's rows): |x P| = |x|, mean(x P) = 0.

    `v @ isometry(D).T` takes a vector of ours back to theirs, up to the scale.
    """
    row_D = np.arange(1, width + 1, dtype=np.float64)
    column_E = np.arange(width + 1)
    below_DE = column_E < row_D[:, None]
    rows_DE = np.where(below_DE, 1.0, np.where(column_E == row_D[:, None], -row_D[:, None], 0.0))
    return (rows_DE / np.sqrt(row_D * (row_D + 1))[:, None]).astype(np.float32)


def cosine_parts(width: int) -> Params:
    """`projection` and `norm` of a tower whose scores are SCALE * cosine of mean-pooled vectors of `width` numbers."""
    gain = np.float32(np.sqrt(SCALE / (width + 1)))
    return {
        "projection": {"kernel": isometry(width), "bias": np.zeros(width + 1, np.float32)},
        "norm": {"scale": np.full(width + 1, gain), "bias": np.zeros(width + 1, np.float32)},
    }


def is_sentence_folder(folder: Path) -> bool:
    """Whether the folder's modules.json says mean pooling, with or without normalisation.

    Raises WeightsError where it says anything else: a [CLS] or maximum pooling, or a further dense layer.
    """
    if not (folder / "modules.json").is_file():
        return False
    kinds = [str(module["type"]).rsplit(".", 1)[-1] for module in read_json(folder, "modules.json")]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise WeightsError(
            f"{folder}/modules.json lists {kinds}, wanted Transformer, Pooling and perhaps Normalize; "
            "without modules.json the folder is taken as a plain BERT"
        )
    pooling = read_json(folder, f"{read_json(folder, 'modules.json')[1]['path']}/config.json")
    modes = sorted(name for name, on in pooling.items() if name.startswith("pooling_mode_") and on)
    if modes != ["pooling_mode_mean_tokens"]:
        raise WeightsError(
            f"{folder} pools by {modes}, wanted ['pooling_mode_mean_tokens']; "
            "without modules.json the folder is taken as a plain BERT"
        )
    return True
