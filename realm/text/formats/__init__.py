"""Corpora as users have them: one reader a format, all with the same checks, places and counts (`read`).

JSON lines under any field names, BEIR, KILT, DPR's passages, MediaWiki dumps, Parquet, folders of text, datasets that
TensorFlow Datasets has prepared; local or by URL, plain, gzip, bzip2 or zstd.
"""

from realm.text.formats.admission import BY_DESIGN
from realm.text.formats.read import FORMATS, WITH_SPANS, format_of, read_documents, read_with_spans
from realm.text.formats.wikitext import residue

__all__ = ["BY_DESIGN", "FORMATS", "WITH_SPANS", "format_of", "read_documents", "read_with_spans", "residue"]
