"""A pretrained encoder measured as it is: a sentence encoder's one segment, kept vectors, a run's own table."""

import json
import shutil
from dataclasses import replace

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from experiments.cli import main
from realm.models.dual_encoder import DualEncoderConfig, dual_encoder
from realm.models.weights import bert_config, tower_settings
from realm.models.weights.source import EMBEDDED
from realm.text.blocks import CorpusConfig, build_corpus
from realm.text.packing import pack_blocks
from realm.text.sample import sample_path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The embedded BERT as a sentence-transformers folder, and a corpus of 30 paragraphs."""
    out = tmp_path_factory.mktemp("encoder")
    shutil.copytree(EMBEDDED, out / "encoder")
    kinds = ("Transformer", "Pooling", "Normalize")
    modules = [{"path": f"{i}_{kind}", "type": f"sentence_transformers.models.{kind}"} for i, kind in enumerate(kinds)]
    (out / "encoder" / "modules.json").write_text(json.dumps(modules))
    (out / "encoder" / "1_Pooling").mkdir()
    (out / "encoder" / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    build_corpus(CorpusConfig(documents=str(sample_path("corpus")), limit=30, block_length=96), out / "corpus")
    return out


def test_blocks_are_embedded_in_one_segment_and_kept(folder):
    spec, found = f"hf:{folder / 'encoder'}", folder / "found.json"
    arguments = ["--corpus", str(folder / "corpus"), "--questions", "sample:questions", "--max-questions", "40"]
    arguments = ["evaluate", spec, *arguments, "--vectors", str(folder / "vectors"), "--json", str(found)]
    arguments += ["--dumps", str(folder / "dumps")]
    assert main(arguments) == 0
    first = json.loads(found.read_text())
    [made] = (folder / "vectors").glob("*/generations/0-0")
    stored_NE = np.concatenate([np.load(path) for path in sorted(made.glob("shard-*.npy"))])

    table = build_corpus(
        CorpusConfig(documents=str(sample_path("corpus")), limit=30, block_length=96), folder / "corpus"
    )
    blocks = pack_blocks(table, np.arange(8), 96)
    network = dual_encoder(DualEncoderConfig(bert_config(spec), init=spec, **tower_settings(spec)))
    params = network.init(jax.random.key(1))
    as_queries_NE = network.apply(params, "embed_queries", blocks["token_NT"], blocks["length_N"])
    np.testing.assert_allclose(stored_NE[:8], as_queries_NE, atol=2e-4)

    for name in ("encoder", "bm25"):
        row = next(row for row in first["recall"]["rows"] if row["name"] == name)
        assert row["setting"]["rows"] == table.indexed and row["setting"]["split"] == "40 questions"
        assert row["values"]["gold@5"]["value"] == pytest.approx(first["intervals"][name]["5"]["mean"])
        assert first["recall_intervals"][name]["gold@5"] == first["intervals"][name]["5"]
        assert row["setting"] == first["recall_setting"][name] and row["setting"]["fingerprint"] == first["fingerprint"]
    counts = first["question_counts"]
    assert counts["asked"] == 40 and f"{counts['document_not_in_corpus']:,} of 19,410" in first["recall"]["notes"][0]
    dumps = [str(folder / "dumps" / f"recall-{name}.jsonl") for name in ("encoder", "bm25")]
    assert main(["compare", *dumps, "--field", "gold@5", "--json", str(folder / "compared.json")]) == 0
    compared = json.loads((folder / "compared.json").read_text())
    after, before = (first["intervals"][name]["5"]["mean"] for name in ("bm25", "encoder"))
    assert compared["difference"]["mean"] == pytest.approx(after - before)
    before = made.stat().st_mtime_ns
    assert main(arguments) == 0 and made.stat().st_mtime_ns == before
    assert json.loads(found.read_text())["recall"] == first["recall"]

    other = folder / "other"  # the same folder of vectors, another encoder
    shutil.copytree(folder / "encoder", other)
    weights = load_file(other / "model.safetensors")
    name = next(name for name in weights if name.endswith("word_embeddings.weight"))
    save_file(weights | {name: weights[name] * np.float32(1.5)}, other / "model.safetensors")
    assert main(["evaluate", f"hf:{other}", *arguments[2:]]) == 0
    assert len(list((folder / "vectors").glob("*/generations/0-0"))) == 2 and made.stat().st_mtime_ns == before


def test_an_encoder_needs_a_corpus_and_questions(folder, capsys):
    assert main(["evaluate", f"hf:{folder / 'encoder'}"]) == 2
    assert "--corpus CORPUS --questions QUESTIONS" in capsys.readouterr().err


def test_options_that_would_change_nothing_are_refused(folder, capsys):
    whole = ["--corpus", str(folder / "corpus"), "--questions", "sample:questions"]
    arguments = ["evaluate", f"hf:{folder / 'encoder'}", *whole, "--mode", "squad"]
    assert main(arguments) == 2 and "found --mode, but an encoder" in capsys.readouterr().err
    assert main(["evaluate", str(folder), "--vectors", "x"]) == 2 and "found --vectors" in capsys.readouterr().err


def test_a_corpus_of_other_wordpieces_is_refused_before_any_work(folder, capsys):
    few = CorpusConfig(documents=str(sample_path("corpus")), limit=30, block_length=96, vocabulary="train:400")
    build_corpus(few, folder / "few")
    shutil.copytree(folder / "encoder", folder / "named")
    build_corpus(replace(few, vocabulary=None), folder / "usual").tokenizer.save(folder / "named" / "vocab.txt")
    arguments = ["evaluate", f"hf:{folder / 'named'}", "--questions", "sample:questions", "--corpus"]
    assert main([*arguments, str(folder / "few")]) == 1
    said = capsys.readouterr().err
    assert "reads the vocabulary" in said and "of 400" in said and "embedded" not in said
