import json
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

from realm.models.weights import (
    WeightsError,
    bert_config,
    load_bert,
    load_reader,
    load_tower,
    reader_settings,
    tower_settings,
)
from realm.models.weights.__main__ import main
from tests.models.hf_folders import BERT, BLOCK, JOINT, QUERY, SPANS, embedder, encoder, head, reader, same, write

LEFT_OVER = {
    "cls.predictions.bias": np.ones(40, np.float32),
    "cls.predictions.decoder.weight": np.ones((40, 16), np.float32),
}
VECTORS = {"block_emb": np.ones((7, 6), np.float32)}


def under(prefix, tensors):
    return {prefix + name: tensor for name, tensor in tensors.items()}


def open_qa():
    left_over = under("embedder.", LEFT_OVER) | under("reader.", LEFT_OVER)
    return embedder(QUERY, "embedder.") | reader(SPANS, "reader.") | left_over | VECTORS


def test_a_realm_embedder_fills_a_tower(tmp_path):
    spec = write(tmp_path, embedder(QUERY) | LEFT_OVER)
    tower, report = load_tower(spec, bert_config(spec), 6)
    same(tower, QUERY)
    assert (report.layout, report.missing, report.initialised) == ("RealmEmbedder", (), ())
    assert report.unused == tuple(LEFT_OVER)  # its output layer is no copy of the words, and nobody's concern
    assert bert_config(spec) == BERT and tower_settings(spec) == {
        "width": 6,
        "pooling": "cls",
        "block_segments": 2,
        "norm_epsilon": 1e-3,
    }
    joint, report = load_bert(spec, BERT)
    same(joint, {"bert": QUERY["bert"]})
    assert report.initialised == ("head",) and set(LEFT_OVER) < set(report.unused)


def test_the_epsilon_of_an_export_is_kept(tmp_path):
    spec = write(tmp_path, embedder(QUERY), projection_layer_norm_eps=1e-5)
    assert tower_settings(spec)["norm_epsilon"] == 1e-5


def test_a_knowledge_encoder_fills_the_joint_encoder(tmp_path):
    spec = write(tmp_path, encoder(JOINT, "realm.") | head(JOINT))
    joint, report = load_bert(spec, BERT)
    same(joint, JOINT)
    assert (report.layout, report.unused, report.missing) == ("RealmKnowledgeAugEncoder", (), ())
    tower, report = load_tower(spec, BERT, 6)
    same(tower, {"bert": JOINT["bert"]})
    assert report.initialised == ("projection",) and report.missing[0] == "cls.dense.weight"
    assert tower_settings(spec) == reader_settings(spec) == {}


def test_an_answering_model_fills_tower_and_reader(tmp_path):
    spec = write(tmp_path, open_qa())
    tower, of_tower = load_tower(spec, BERT, 6)
    spans, of_reader = load_reader(spec, BERT, 5)
    same(tower, QUERY)
    same(spans, SPANS)
    assert of_tower.layout == of_reader.layout == "RealmForOpenQA"
    assert "block_emb" in of_tower.unused and "reader.realm.pooler.dense.bias" in of_tower.unused
    assert "embedder.cls.dense.bias" in of_reader.unused and of_reader.missing == of_tower.missing == ()
    same(load_bert(spec, BERT)[0], {"bert": SPANS["bert"]})
    assert reader_settings(spec) == {"width": 5, "answer_length": 3, "norm_epsilon": 1e-3}


def test_a_reader_alone_is_told_apart(tmp_path):
    spec = write(tmp_path, reader(SPANS))
    spans, report = load_reader(spec, BERT, 5)
    same(spans, SPANS)
    assert report.layout == "RealmReader" and reader_settings(spec)["width"] == 5


def test_the_two_towers_of_a_scorer(tmp_path):
    spec = write(tmp_path, embedder(BLOCK, "embedder.") | embedder(QUERY, "query_embedder."))
    for side, expected in (("query", QUERY), ("block", BLOCK)):
        tower, report = load_tower(spec, BERT, 6, side)
        same(tower, expected)
        assert report.layout == "RealmScorer"
    with pytest.raises(WeightsError, match="has two towers .query_embedder.* differs from embedder.*wanted one or a"):
        load_tower(spec, BERT, 6)
    alike = write(tmp_path / "alike", embedder(QUERY, "embedder.") | embedder(QUERY, "query_embedder."))
    same(load_tower(alike, BERT, 6)[0], QUERY)
    single = write(tmp_path / "single", embedder(QUERY, "embedder."))
    same(load_tower(single, BERT, 6)[0], QUERY)


@pytest.mark.parametrize(
    "name",
    [
        "embedder.cls.LayerNorm.bias",
        "embedder.realm.pooler.dense.bias",
        "embedder.realm.encoder.layer.1.output.dense.weight",
        "reader.qa_outputs.dense_output.bias",
    ],
)
def test_what_a_layout_lacks_is_named(tmp_path, name):
    tensors = open_qa()
    del tensors[name]
    spec = write(tmp_path, tensors)
    lost = name.split(".", 1)[1].removeprefix("realm.")
    with pytest.raises(WeightsError, match=rf"lacks \['{lost}'\]"):
        load_reader(spec, BERT, 5) if name.startswith("reader") else load_tower(spec, BERT, 6)


def test_a_plain_encoder_leaves_the_span_head_as_it_was(tmp_path):
    spec = write(tmp_path, encoder(JOINT, "realm."))
    spans, report = load_reader(spec, BERT, 5)
    same(spans, {"bert": JOINT["bert"]})
    assert report.initialised == ("spans",) and report.missing[0] == "qa_outputs.dense_intermediate.weight"


def test_another_width_is_named(tmp_path):
    spec = write(tmp_path, embedder(QUERY))
    with pytest.raises(WeightsError, match=r"cls.dense.weight \(6, 16\), wanted \(8, 16\)"):
        load_tower(spec, BERT, 8)


def test_names_of_no_layout_are_refused(tmp_path):
    spec = write(tmp_path, {"transformer.h.0.attn.weight": np.ones(2, np.float32)})
    with pytest.raises(WeightsError, match=r"\['transformer.h.0.attn.weight'\], wanted those of a BERT"):
        load_bert(spec, BERT)


def test_the_activation_of_realm_is_googles_unless_it_says_another(tmp_path):
    spec = write(tmp_path, embedder(QUERY))
    assert "hidden_act" not in json.loads((tmp_path / "config.json").read_text()) and bert_config(spec).gelu == "tanh"
    assert bert_config(write(tmp_path, embedder(QUERY), hidden_act="gelu")).gelu == "erf"


def sharded(folder, tensors, **more):
    """The folder with its tensors in two files and an index."""
    spec = write(folder, tensors)
    (folder / "model.safetensors").unlink()
    where = {name: f"model-0000{i % 2 + 1}-of-00002.safetensors" for i, name in enumerate(tensors)}
    for file in set(where.values()):
        save_file({name: tensors[name] for name in tensors if where[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where | more}))
    return spec


def test_shards_are_read_as_one(tmp_path):
    spec = sharded(tmp_path, encoder(JOINT, "realm.") | head(JOINT))
    joint, report = load_bert(spec, BERT)
    same(joint, JOINT)
    assert report.unused == ()


def test_what_the_index_of_shards_promises_must_be_there(tmp_path):
    tensors = encoder(JOINT, "realm.") | head(JOINT)
    del tensors["cls.predictions.bias"]
    spec = sharded(tmp_path, tensors, **{"cls.predictions.bias": "model-00002-of-00002.safetensors"})
    with pytest.raises(WeightsError, match="index.json names cls.predictions.bias, and its file has none"):
        load_bert(spec, BERT)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(WeightsError, match="model-00002-of-00002.safetensors is no safetensors file"):
        load_bert(spec, BERT)


def test_a_pickled_file_without_pytorch_names_the_extra(tmp_path, monkeypatch):
    spec = write(tmp_path, embedder(QUERY))
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(WeightsError, match=r"pytorch_model.bin can be read with PyTorch only.*the extra `torch`"):
        load_tower(spec, BERT, 6)


def test_the_table_of_a_report_says_where_each_tensor_went(tmp_path):
    spec = write(tmp_path, embedder(QUERY) | LEFT_OVER)
    lines = load_tower(spec, BERT, 6)[1].table().splitlines()
    assert lines[:2] == ["layout RealmEmbedder", "mapped 43"]
    assert [line.split() for line in lines if "layer.1.attention.self.key.weight" in line] == [
        ["encoder.layer.1.attention.self.key.weight", "bert/layers/1/key/kernel"]
    ]
    assert lines[-5:] == ["unused 2", *(f"  {name}" for name in LEFT_OVER), "missing 0", "initialised 0"]


def test_the_command_prints_what_each_encoder_takes(tmp_path, capsys):
    assert main([write(tmp_path, open_qa())]) == 0
    said = capsys.readouterr().out
    titles = [line.split(",")[0] for line in said.splitlines() if line.startswith("==")]
    assert titles == ["== joint encoder", "== tower", "== span reader"] and said.count("layout RealmForOpenQA") == 3
    assert main([f"hf:{tmp_path / 'nowhere'}"]) == 1 and "no config.json in" in capsys.readouterr().err
    assert main([]) == 2
