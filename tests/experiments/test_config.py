"""Every preset is a value that survives JSON, and unknown fields are refused."""

import json

import jax
import pytest
from cattrs import ClassValidationError

from experiments.config import Preset, Refresh, Stage, from_json, to_json, with_init
from experiments.presets import PRESETS, card
from index_refresh.schedule import ScheduleError
from realm.models.weights import WeightsError
from realm.objectives.realm import Realm
from realm.text.masks import RandomSpan, RandomToken, SalientSpan


@pytest.mark.parametrize("name", PRESETS)
def test_presets_go_to_json_and_back(name):
    preset = PRESETS[name]()
    assert from_json(json.loads(json.dumps(to_json(preset))), Preset) == preset
    assert len(card(name)) > 20


@pytest.mark.parametrize("masking", [SalientSpan(supported=True), RandomSpan(max_tokens=3), RandomToken(rate=0.2)])
def test_unions_keep_their_type(masking):
    stage = Stage(Realm(masking=masking))
    assert from_json(json.loads(json.dumps(to_json(stage))), Stage).objective.masking == masking


def test_an_unknown_field_is_refused():
    record = to_json(PRESETS["tiny"]())
    record["realm"]["training"]["step"] = 3
    with pytest.raises(ClassValidationError):
        from_json(record, Preset)


def test_a_bad_schedule_is_refused_when_the_config_is_made():
    with pytest.raises(ScheduleError):
        Refresh(schedule="sometimes")


def test_one_init_starts_every_encoder_and_shapes_it():
    tiny = PRESETS["tiny"]()
    started = with_init(tiny, "embedded")
    encoders = [
        started.mlm.objective.joint,
        started.ict.objective.retriever,
        started.realm.objective.retriever,
        started.realm.objective.joint,
    ]
    assert all(e.init == "embedded" and (e.bert.width, e.bert.layers, e.bert.gelu) == (128, 2, "erf") for e in encoders)
    assert all(e.bert.dropout == 0.0 for e in encoders)  # the preset's, not the file's
    assert started.realm.training == tiny.realm.training and started.realm.objective.retriever.width == 32
    params = started.ict.objective.init(jax.random.key(0))["retriever"]["tower"]["bert"]
    assert params["word"]["embedding"].shape == (30522, 128)
    with pytest.raises(WeightsError, match="/no/such"):
        with_init(tiny, "hf:/no/such")


def test_one_path_stands_for_a_list_of_one_and_null_for_none():
    record = to_json(PRESETS["tiny"]())
    record["corpus"] |= {"documents": "a.jsonl", "spans": None}
    corpus = from_json(record, Preset).corpus
    assert corpus.documents == ("a.jsonl",) and corpus.spans == ()
    record["corpus"]["documents"] = [1]
    with pytest.raises(ClassValidationError) as caught:
        from_json(record, Preset)
    assert "wanted a string or a list of strings" in repr(caught.value.exceptions)
