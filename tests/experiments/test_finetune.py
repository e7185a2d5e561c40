"""Fine-tuning from the command line: what is trained and measured, what stays frozen, what a run answers."""

import dataclasses
import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from experiments.asking import AskError, open_asking
from experiments.cli import main
from experiments.fact_questions import write_fact_questions
from experiments.finetune_command import Finetune, _chosen
from experiments.locate import open_retrieving, open_run
from experiments.measure import training_shares
from experiments.open_answers import FrozenMoved, frozen_proof
from experiments.preflight import preflight
from experiments.presets import PRESETS
from experiments.searching import block_vectors, embedded
from experiments.warm_start import (
    PreflightError,
    check_run,
    initial_params,
    noted_hashes,
    noted_start,
    start_hashes,
    warm_started,
)
from realm.evaluation.dump import read_dump
from realm.models.span_reader import SpanReaderConfig
from realm.models.tree_hash import tree_hash
from realm.text.facts import FactsConfig, write_facts
from realm.text.question_sets.spec import open_question_set, same_questions
from realm.text.table import BlockTable
from realm.training.checkpoint import restore_params
from realm.training.metrics import read_metrics
from realm.training.run_folder import RunFolderError


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    out = tmp_path_factory.mktemp("job") / "tiny_open"
    assert main(["finetune", "tiny_open", "--out", str(out), "--json", str(out.parent / "found.json")]) == 0
    return out


@pytest.fixture(scope="module")
def asking(job):
    return open_asking(job)


def test_the_summary_carries_what_every_number_was_measured_on(job):
    summary = json.loads((job / "summary.json").read_text())
    assert json.loads((job.parent / "found.json").read_text()) == summary
    assert summary["recall"].keys() == {"untrained", "ict", "open_qa", "bm25"}
    rows = summary["open_qa"]["rows"]
    assert rows.keys() == {"open_qa", "bm25 + reader", "bm25 + overlap", "majority"}
    for row in rows.values():
        assert row["mode"] == "orqa" and row["questions"] == 40 and len(row["fingerprint"]) == 64
        assert row["em"]["low"] <= row["em"]["mean"] <= row["em"]["high"] and row["em"]["units"] > 1
        assert row["em"]["mean"] <= row["f1"]["mean"] and row["corpus"] == summary["corpus"]["fingerprint"]
    assert (rows["open_qa"]["k"], rows["open_qa"]["index"], rows["open_qa"]["index_age"]) == (3, "exact", 0)
    assert rows["majority"]["k"] == 0 and rows["majority"]["index"] == "none"
    assert [rows[name]["ann_recall"] for name in ("open_qa", "bm25 + reader", "majority")] == [1.0, None, None]


def test_the_summary_says_how_many_questions_taught_nothing(job):
    found = json.loads((job / "summary.json").read_text())["open_qa"]["training"]
    records = [r for r in read_metrics(job / "open_qa" / "metrics.jsonl") if "event" not in r]
    assert (found["steps"], found["logged"]) == (records[-1]["step"], len(records))
    gaps = np.diff([0, *(r["step"] for r in records)])
    for name in ("no_correct_block", "no_correct_span"):
        mean = sum(r[name] * gap for r, gap in zip(records, gaps, strict=True)) / gaps.sum()
        assert found[name] == pytest.approx(mean) and 0 <= found[name] <= 1
    assert training_shares(job) == {"steps": 0, "logged": 0, "no_correct_block": None, "no_correct_span": None}


def test_rules_for_answers_of_another_kind_are_refused_before_anything_is_embedded(job, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("experiments.show.block_vectors", lambda *_: pytest.fail("embedded"))
    dumps = tmp_path / "dumps"
    assert main(["evaluate", str(job), "--mode", "regex-match", "--dumps", str(dumps)]) == 1
    assert "found text answers and mode regex-match, wanted orqa or squad or trivia" in capsys.readouterr().err
    assert not dumps.exists()


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        ([], 1, "add --resume"),
        (["--resume", "--train", "realm:other.jsonl"], 1, "differs from this command in open_qa.objective.questions"),
        (["--resume", "--overwrite"], 2, "exclude each other"),
        (["--init", "embedded", "--warm-start", "runs/x"], 2, "exclude each other"),
    ],
)
def test_a_job_that_is_there_is_never_written_to_by_accident(job, more, code, said, capsys):
    assert main(["finetune", "tiny_open", "--out", str(job), *more]) == code
    assert said in capsys.readouterr().err


def test_questions_of_training_documents_alone_leave_nothing_to_measure(tmp_path, capsys):
    arguments = ["finetune", "tiny_open", "--out", str(tmp_path / "run"), "--corpus.holdout", "0"]
    assert main(arguments) == 1 and "--corpus.holdout" in capsys.readouterr().err
    assert main(["finetune", "tiny"]) == 2 and "no open_qa stage" in capsys.readouterr().err


def test_only_questions_about_held_out_documents_are_measured_and_none_of_them_is_trained_on(job):
    run, dump = open_run(job), read_dump(job / "open_qa" / "answers-open_qa.jsonl")
    units = run.stage.objective.units(run.table)
    trained = {units[i].id for i in range(len(units))}
    assert trained and not trained & {record["id"] for record in dump.records}
    document = {q.id: q.document for q in open_question_set("sample:questions").questions}
    rows = [run.table.rows_of_document(document[record["id"]])[0] for record in dump.records]
    assert run.table.heldout_N[rows].all()


def test_a_dump_can_be_checked_against_the_text(job):
    run, dump = open_run(job), read_dump(job / "open_qa" / "answers-bm25-reader.jsonl")
    assert dump.header["row"] == "bm25 + reader" and dump.header["index"] == "bm25"
    for record in dump.records:
        assert len(record["blocks"]) == len(record["holds_answer"]) == 3
        assert record["block"] in record["blocks"]
        text = run.table.text(run.table.row_of(record["block"]))
        assert text[record["start"] : record["end"]] == record["prediction"]


def test_the_block_tower_is_that_of_ict_and_the_question_tower_is_not(job):
    trained = restore_params(job / "open_qa" / "checkpoints")[0]["retriever"]
    ict = restore_params(job / "ict" / "checkpoints")[0]["retriever"]["tower"]
    first = [tower["projection"]["kernel"] for tower in (trained["block"], trained["query"])]
    same = [np.array_equal(kernel, ict["projection"]["kernel"]) for kernel in first]
    assert same == [True, False]
    proof = json.loads((job / "summary.json").read_text())["open_qa"]["document_side"]
    assert proof["frozen"] and proof["before"] == proof["after"]


def test_vectors_of_a_frozen_block_tower_are_taken_over_and_no_others(job, monkeypatch):
    run, params = open_run(job), restore_params(job / "open_qa" / "checkpoints")[0]
    afresh = list(embedded(run.stage, params, run.table))
    monkeypatch.setattr("experiments.searching.embedded", lambda *_: None)
    kept = block_vectors(run.stage, params, run.table, [(run.stage, run.folder)])
    assert np.concatenate(list(kept)).tobytes() == np.concatenate(afresh).tobytes()
    moved = params | {"retriever": params["retriever"] | {"block": params["retriever"]["query"]}}
    assert block_vectors(run.stage, moved, run.table, [(run.stage, run.folder)]) is None
    ict, own = open_run(job / "ict"), {"retriever": {"tower": params["retriever"]["block"]}}
    shared = block_vectors(ict.stage, own, run.table, [(run.stage, run.folder)])
    assert np.concatenate(list(shared)).tobytes() == np.concatenate(afresh).tobytes()
    other = dataclasses.replace(run.stage.objective.retriever, pooling="cls")
    stage = dataclasses.replace(run.stage, objective=dataclasses.replace(run.stage.objective, retriever=other))
    assert block_vectors(stage, params, run.table, [(run.stage, run.folder)]) is None


def test_a_reader_may_start_from_other_weights_than_the_retriever():
    default = PRESETS["squad_open"]()
    bert = dataclasses.replace(default.open_qa.objective.joint.bert, layers=1)
    other = dataclasses.replace(default.open_qa.objective, joint=SpanReaderConfig(bert=bert))
    preset = dataclasses.replace(default, open_qa=dataclasses.replace(default.open_qa, objective=other))
    chosen = _chosen(Finetune_of(preset, reader_init="embedded"), default).open_qa.objective
    assert chosen.joint.bert.layers == 2 and chosen.joint.init == "embedded"
    assert chosen.retriever == default.open_qa.objective.retriever


def test_a_block_tower_that_moved_is_an_error(job):
    run = open_run(job)
    params = restore_params(job / "open_qa" / "checkpoints")[0]
    moved = params | {"retriever": params["retriever"] | {"block": params["retriever"]["query"]}}
    with pytest.raises(FrozenMoved, match="had to stay"):
        frozen_proof(run.stage.objective, tree_hash(run.stage.objective.frozen(params)), moved)


def test_a_source_that_trains_on_is_no_witness_of_what_the_fine_tuning_started_from(tmp_path, monkeypatch):
    stage, folder, number = PRESETS["tiny_open"]().open_qa, tmp_path / "open_qa", [0]
    folder.mkdir()
    monkeypatch.setattr(
        "experiments.warm_start.initial_params", lambda *_: stage.objective.init(jax.random.key(*number))
    )
    start = noted_start(stage, {}, folder)
    (folder / "checkpoints" / "4").mkdir(parents=True)
    number[0] = 1  # the source has trained on, and the fine-tuning is resumed
    other = noted_start(stage, {}, folder)
    noted = noted_hashes(folder)
    assert noted == start_hashes(stage, start) != start_hashes(stage, other)
    assert frozen_proof(stage.objective, noted["frozen"], start)["frozen"]
    with pytest.raises(FrozenMoved):
        frozen_proof(stage.objective, noted["frozen"], other)
    shutil.rmtree(folder / "checkpoints")  # killed before its first checkpoint: it begins anew, from the new source
    noted_start(stage, {}, folder)
    assert noted_hashes(folder) == start_hashes(stage, other)


def test_evaluate_repeats_the_summary_and_takes_other_questions_and_rules(job, tmp_path):
    out = tmp_path / "found.json"
    assert main(["evaluate", str(job), "--json", str(out)]) == 0
    found, summary = json.loads(out.read_text()), json.loads((job / "summary.json").read_text())
    assert found["answers"]["open_qa"]["f1"] == summary["open_qa"]["rows"]["open_qa"]["f1"]
    measured = {record["id"] for record in read_dump(job / "open_qa" / "answers-open_qa.jsonl").records}
    run = open_run(job)
    units = run.stage.objective.units(run.table)
    chosen = {*sorted(measured)[:5], *(units[i].id for i in range(3))}  # three of them were trained on
    arguments = ["--questions", "realm:" + str(_some(tmp_path, chosen)), "--mode", "squad", "--dumps", str(tmp_path)]
    assert main(["evaluate", str(job), *arguments, "--json", str(out)]) == 0
    row = json.loads(out.read_text())["answers"]["open_qa"]
    assert (row["mode"], row["questions"], row["dataset"]) == ("squad", 5, "squad")
    assert row["split"] == "5 questions, 3 trained on left out"
    assert main(["compare", str(tmp_path / "answers-open_qa.jsonl"), str(tmp_path / "answers-bm25-overlap.jsonl")]) == 0
    assert main(["compare", str(tmp_path), str(tmp_path / "recall-bm25.jsonl"), "--field", "gold@5"]) == 0


def test_compare_of_a_run_with_itself_finds_nothing(job, tmp_path, capsys):
    out = tmp_path / "found.json"
    assert main(["compare", str(job), str(job / "open_qa"), "--field", "f1", "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    assert found["difference"]["mean"] == 0 and found["equal"] == 40 and found["p_value"] == 1
    assert "articles of sample:questions" in capsys.readouterr().out
    assert (found["field"], found["mode"], found["dataset"]) == ("f1", "orqa", "sample:questions")
    assert found["split"] == "40 questions about held-out documents" and len(found["fingerprint"]) == 64
    assert found["first"]["row"] == found["second"]["row"] == "open_qa"
    arguments = ["compare", str(job / "ict"), str(job), "--field", "gold@5", "--json", str(out)]
    assert main(arguments) == 0
    found, recall = json.loads(out.read_text()), json.loads((job / "summary.json").read_text())["recall"]
    assert found["difference"]["mean"] == pytest.approx(recall["open_qa"]["5"] - recall["ict"]["5"])
    assert main(["compare", str(job), str(tmp_path)]) == 2


def test_an_answer_is_a_span_of_its_block_and_its_probabilities_fit(asking, job):
    found = asking.ask("Who began the scientific revolution?", count=3)
    best = found["evidence"][0]
    [(start, end)] = best["spans"]
    assert best["text"][start:end] == found["answer"] == best["answer"]
    assert asking.table.text(asking.table.row_of(best["block"])) == best["text"]
    assert found["p"] >= found["evidence"][-1]["p"] and len({one["block"] for one in found["evidence"]}) == 3
    assert sum(one["p_block"] for one in found["evidence"]) <= 1 + 1e-5
    assert found["index"]["index_age"] == 8 and found["index"]["generation_step"] == 0
    assert found["seconds"].keys() == {"embed", "search", "read"}
    with pytest.raises(AskError, match="empty"):
        asking.ask("  ")


def test_ask_answers_as_evaluation_does(asking, job):
    record = read_dump(job / "open_qa" / "answers-open_qa.jsonl").records[0]
    assert asking.ask(record["question"])["answer"] == record["prediction"]


def test_an_index_that_is_gone_is_built_beside_the_run_and_kept(asking, job, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(job, copy, symlinks=True)
    shutil.rmtree(copy / "open_qa" / "generations")
    said = []
    again = open_asking(copy, said.append)
    assert len(said) == 1 and "building one" in said[0] and again.index["index_age"] == 0
    question = "Who began the scientific revolution?"
    assert again.ask(question)["answer"] == asking.ask(question)["answer"]  # the block side was frozen
    said.clear()
    assert open_asking(copy, said.append).index["generation_step"] == 8 and not said


def test_ask_on_the_command_line_reads_questions_and_prints_json(job, capsys):
    assert main(["ask", str(job), "Who was it?", "When was it?", "--count", "2", "--json"]) == 0
    said = capsys.readouterr()
    assert [json.loads(line)["question"] for line in said.out.splitlines()] == ["Who was it?", "When was it?"]
    assert "ready in" in said.err
    assert main(["ask", str(job), "Who was it?"]) == 0
    assert "p(z|x)" in capsys.readouterr().out
    assert main(["ask"]) == 2 and main(["ask", str(job / "ict"), "Who?"]) == 1
    assert "stage ict answers nothing" in capsys.readouterr().err


def test_a_replaced_document_changes_what_is_found_without_training(asking, job, tmp_path, capsys):
    before = asking.ask("Who began the scientific revolution?")["evidence"][0]
    document, file = before["block"].rpartition(":")[0], tmp_path / "new.jsonl"
    file.write_text(json.dumps({"id": document, "title": before["title"], "text": "Nobody ever did any such thing."}))
    arguments = ["hotswap", str(job), "Who began the scientific revolution?", "--replace", str(file)]
    assert main([*arguments, "--out", str(tmp_path / "corpus"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["before"][0]["evidence"][0]["text"] == before["text"]
    assert all(one["text"] != before["text"] for one in found["after"][0]["evidence"])
    assert found["swap"]["embedded"] == 1 and found["swap"]["lineage"]["replaced_documents"] == 1
    assert found["before"][0]["step"] == found["after"][0]["step"]
    assert main(["hotswap", str(job), "Who?", "--delete", "nobody"]) == 1
    assert "nobody" in capsys.readouterr().err


def test_only_the_default_folder_of_a_swap_forgets_other_versions(asking, job, tmp_path):
    documents = list(dict.fromkeys(asking.table.block_id(row).rpartition(":")[0] for row in range(20)))[:2]
    kept, own = tmp_path / "explicit", job / "open_qa" / "hotswap"
    (kept / "index-other").mkdir(parents=True)
    for document in documents:
        assert main(["hotswap", str(job), "Who?", "--delete", document]) == 0
    [index] = own.glob("index-*")
    assert BlockTable.open(own / "corpus").fingerprint.startswith(index.name.removeprefix("index-"))
    assert main(["hotswap", str(job), "Who?", "--delete", documents[0], "--out", str(kept)]) == 0
    assert len(list(kept.glob("index-*"))) == 2


def test_a_refresher_of_a_job_works_for_its_last_stage_with_an_index(job, tmp_path):
    assert open_retrieving(job)[0] == job / "open_qa"
    shutil.copytree(job / "ict", tmp_path / "realm")  # a started stage without an index
    shutil.copy(job / "preset.json", tmp_path)
    (tmp_path / "corpus").symlink_to(job / "corpus")
    with pytest.raises(RunFolderError, match="retrieves nothing"):
        open_retrieving(tmp_path)
    shutil.rmtree(tmp_path / "realm")
    with pytest.raises(RunFolderError, match="open_qa and .*realm have no config.json"):
        open_retrieving(tmp_path)


def test_training_questions_say_what_is_measured(tmp_path):
    default = PRESETS["squad_open"]()
    assert (default.open_qa.objective.questions, default.questions) == ("sample:questions-dev", "sample:questions-test")
    chosen = _chosen(Finetune_of(default, train="nq-open:a.jsonl"), default)
    assert (chosen.open_qa.objective.questions, chosen.questions) == ("nq-open:a.jsonl", None)
    both = dataclasses.replace(default, questions="b.jsonl")
    assert _chosen(Finetune_of(both, train="a.jsonl"), default).questions == "b.jsonl"
    assert _chosen(Finetune_of(default, train="a.jsonl"), default, measured=True).questions == "sample:questions-test"
    embedded = _chosen(Finetune_of(default, init="embedded"), default)
    assert embedded.ict is not None and embedded.open_qa.objective.joint.init == "embedded"


def Finetune_of(preset, **options):
    made = dataclasses.make_dataclass("Given", [("preset", object)], bases=(Finetune,), frozen=True, kw_only=True)
    return made(preset=preset, **options)


def test_a_warm_start_takes_towers_corpus_and_lengths_of_the_run(job, tmp_path):
    preset = warm_started(PRESETS["squad_open"](), job, own_corpus=False)
    run, stage = open_run(job), preset.open_qa
    assert list(preset.stages()) == ["open_qa"] and Path(preset.built_corpus).samefile(job / "corpus")
    assert stage.objective.retriever == run.stage.objective.retriever and stage.objective.block_lengths == (96,)
    start, theirs = initial_params(stage, {}), restore_params(job / "open_qa" / "checkpoints")[0]
    assert all(np.array_equal(a, b) for a, b in zip(_leaves(start), _leaves(theirs), strict=True))
    other = warm_started(PRESETS["squad_open"](), job, own_corpus=False, reader="embedded").open_qa
    assert other.warm_start.keys() == {"retriever"} and other.objective.retriever == stage.objective.retriever
    assert (other.objective.joint.init, other.objective.joint.bert.width) == ("embedded", 128)
    ict = warm_started(PRESETS["squad_open"](), job / "ict", own_corpus=True)
    assert ict.open_qa.warm_start.keys() == {"retriever"} and ict.built_corpus is None
    with pytest.raises(PreflightError, match="no checkpoint"):
        check_run("open_qa", "retriever", f"run:{tmp_path}", run.table)


def _leaves(tree):
    return jax.tree.leaves(tree)


def test_fact_questions_ask_for_the_object_and_name_the_block_that_holds_it(tmp_path):
    write_facts(FactsConfig(blocks=200), tmp_path)
    counts = write_fact_questions(tmp_path, tmp_path / "questions")
    assert counts["train"] > counts["facts"] > 0
    for name in counts:
        asked = open_question_set(tmp_path / "questions" / f"{name}.jsonl").questions
        assert len(asked) == counts[name]
        for question in asked[:50]:
            assert (
                " what" in question.question and question.question.endswith("?") and "." not in question.question[:-1]
            )
            assert (question.document is None) == (name == "train")


def test_the_halves_of_the_sample_share_no_article():
    halves = [open_question_set(f"sample:questions-{half}") for half in ("dev", "test")]
    assert [len(half.questions) for half in halves] == [8840, 10570]
    articles = [{q.document.rpartition("-")[0] for q in half.questions} for half in halves]
    assert not articles[0] & articles[1] and halves[0].fingerprint != halves[1].fingerprint
    assert [half.split for half in halves] == ["dev", "test"]


def test_a_file_is_the_one_trained_on_however_it_is_written(tmp_path, monkeypatch):
    path = _some(tmp_path, 2)
    monkeypatch.chdir(tmp_path)
    for other in (str(path), path.name, f"realm:./{path.name}"):
        assert same_questions(str(path), other)
    (tmp_path / "other.jsonl").write_bytes(path.read_bytes())
    assert not same_questions(str(path), "other.jsonl") and not same_questions(str(path), "sample:questions")


def _some(folder, chosen):
    """A file of the sample's first questions, so many or those of these ids."""
    path, some = folder / "some.jsonl", open_question_set("sample:questions").questions
    some = some[:chosen] if isinstance(chosen, int) else [question for question in some if question.id in chosen]
    lines = [{"id": q.id, "question": q.question, "answers": q.answers, "doc": q.document} for q in some]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_candidates_that_nobody_embeds_are_not_ranked_again(job):
    preset = PRESETS["tiny_open"]()
    objective = dataclasses.replace(preset.open_qa.objective, vectors="batch", train_documents=True)
    training = dataclasses.replace(preset.open_qa.training, rerank=8)
    stage = dataclasses.replace(preset.open_qa, objective=objective, training=training, warm_start={})
    with pytest.raises(PreflightError, match="rerank=8 and open_qa.objective.vectors='batch'"):
        preflight(dataclasses.replace(preset, ict=None, open_qa=stage), open_run(job).table)


def test_a_document_side_that_is_trained_moves_and_its_index_with_it(job, tmp_path, capsys):
    out, ict = tmp_path / "run", job / "ict"
    started = ["finetune", "tiny_open", "--warm-start", str(ict), "--out", str(out), "--max-questions", "6"]
    trained = ["--open-qa.objective.train-documents", "--open-qa.objective.vectors", "batch"]
    trained += ["--open-qa.objective.beam", "8", "--open-qa.refresh.schedule", "every 4"]
    training = {"steps": 5, "batch-size": 4, "watch.blocks": 0}
    short = [one for name, value in training.items() for one in (f"--open-qa.training.{name}", str(value))]
    assert main([*started, *trained, *short]) == 0
    said = capsys.readouterr()
    assert "document side: trained" in said.out and said.err.count("the last index") == 1
    summary = json.loads((out / "summary.json").read_text())
    assert summary["open_qa"]["document_side"]["frozen"] is False
    events = [json.loads(line) for line in (out / "open_qa" / "generations.jsonl").read_text().splitlines()]
    adopted = [(e["generation_step"], e["step"]) for e in events if e["event"] == "adopted"]
    assert adopted == [(0, 0), (4, 4)] and summary["open_qa"]["rows"]["open_qa"]["index_age"] == 0
    end = restore_params(out / "open_qa" / "checkpoints")[0]["retriever"]
    start = restore_params(ict / "checkpoints")[0]["retriever"]["tower"]
    moved = [not np.array_equal(tower["projection"]["kernel"], start["projection"]["kernel"]) for tower in end.values()]
    assert len(moved) == 2 and all(moved)
    assert [e["step"] for e in events if e["event"] == "published"] == [0, 4, 5]
    asking = open_asking(out)  # by the vectors of the towers that embed the question
    run = open_retrieving(out)
    fresh_NE = np.concatenate(list(embedded(run[1], {"retriever": end}, run[2])))
    assert asking.generation.step == asking.step == 5
    np.testing.assert_allclose(np.concatenate(list(asking.generation.vectors())), fresh_NE, rtol=1e-4, atol=1e-5)
    assert main([*started, *trained, *short, "--resume"]) == 0  # measured again, embedded by nobody
    assert "the last index" not in capsys.readouterr().err
    again = json.loads((out / "summary.json").read_text())
    assert again["recall"] == summary["recall"] and again["open_qa"] == summary["open_qa"]
