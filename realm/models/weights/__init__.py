"""Pretrained weights from Hugging Face folders, or from the small BERT in the package.

`hf:PATH` names a folder with config.json and model.safetensors (whole or in shards) or pytorch_model.bin. Whose weights
they are is read off the tensor names (`layouts`); `load_bert` fills the joint encoder, `load_tower` the retriever,
`load_reader` the span reader. Nothing is dropped in silence: the report lists what was mapped, unused, missing and left
as initialised, and what must not be missing raises. realm/models/export.py writes the same layouts.
"""

from realm.models.weights.load import load_bert, load_reader, load_tower
from realm.models.weights.report import Report, WeightsError
from realm.models.weights.settings import bert_config, reader_settings, tower_settings
from realm.models.weights.source import EMBEDDED, check_spec, vocabulary_of

__all__ = [
    "EMBEDDED",
    "Report",
    "WeightsError",
    "bert_config",
    "check_spec",
    "load_bert",
    "load_reader",
    "load_tower",
    "reader_settings",
    "tower_settings",
    "vocabulary_of",
]
