"""Open-domain question answering: a retriever and a span reader learn from question and answer alone (ORQA).

Lee et al. 2019 (arXiv 1906.00300, section 4), which REALM uses to fine-tune (arXiv 2002.08909, section 4.2). Two
marginals are added: of the blocks of the beam that hold an answer, and of the correct ones among all spans of the top
blocks together, a span's score being the reader's plus its block's. Blocks stay frozen by default: the stored vectors
of the index are scored, and only the question's tower and the reader move. L: blocks of the beam; K: those that are
read, the beam's first; W: widths of spans. There is no null block: it holds no answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from realm.models.dual_encoder import DualEncoderConfig, dual_encoder
from realm.models.span_reader import SpanReaderConfig, span_reader
from realm.objectives.batch_beam import batch_beam
from realm.objectives.beam import beam_vectors, gold_spans, stored_vectors
from realm.objectives.marginal import MASKED, log_prior
from realm.objectives.realm import ObjectiveError, block_arrays, reader_inputs
from realm.objectives.span_marginal import best_spans, marginal_log_likelihood, spans_inside
from realm.protocols import Arrays, Items, Metrics, Params
from realm.text.packing import pack_queries
from realm.text.question_units import QuestionUnit, QuestionUnits
from realm.text.table import BlockTable


@dataclass(frozen=True)
class OpenQa:
    """Fine-tuning on the questions of a file, over one corpus.

    questions: a file in any known format, `FORMAT:PATH`, `PATH#SET`, or `sample:questions`. beam: blocks that the
    retriever is taught on (any number from the corpus's up means all); read: how many of them the reader reads;
    read_in_training: how many it learns from, None for the same (fewer make a cheaper step). vectors: `index` scores
    the stored vectors, which stay as they are; `blocks` embeds the beam's blocks in the loss, for a small beam; `batch`
    (DPR) scores every question against all blocks that the questions of its batch bring along: what each reads, a right
    one, and its `negatives`; embedded in the loss where the block side learns. negatives: for `batch`, how many of the
    first blocks of its beam that hold no answer a question brings. train_documents: the block side learns too (with
    `blocks` or `batch`); what is read and found comes from the index, so refresh it. block_score: whether a span's
    score has its block's in it. batch_lengths: padded question lengths; block_lengths: padded lengths of what is read,
    and of what is embedded.
    """

    items: ClassVar[Items] = "blocks"
    retriever: DualEncoderConfig = field(default_factory=lambda: DualEncoderConfig(shared=False))
    joint: SpanReaderConfig = field(default_factory=SpanReaderConfig)
    questions: str = "sample:questions"
    beam: int = 5000
    read: int = 5
    read_in_training: int | None = None
    vectors: Literal["index", "blocks", "batch"] = "index"
    negatives: int = 1
    train_documents: bool = False
    block_score: bool = True
    batch_lengths: tuple[int, ...] = (64,)
    block_lengths: tuple[int, ...] = (288,)

    def __post_init__(self) -> None:
        if not 1 <= self.read <= self.beam:
            raise ObjectiveError(f"found read={self.read} and beam={self.beam}, wanted 1 <= read <= beam")
        if not 1 <= self.trained_read <= self.read:
            raise ObjectiveError(
                f"found read_in_training={self.read_in_training} and read={self.read}, wanted 1 <= read_in_training "
                "<= read"
            )
        places = max(self.batch_lengths) + max(self.block_lengths) - 2
        if places > self.joint.bert.positions:
            raise ObjectiveError(
                f"found a question of {max(self.batch_lengths)} and a block of {max(self.block_lengths)} wordpieces, "
                f"{places} places together, and joint.bert.positions={self.joint.bert.positions}: shorten one of them"
            )
        if not 0 <= self.negatives <= self.beam:
            raise ObjectiveError(
                f"found negatives={self.negatives} and beam={self.beam}, wanted 0 <= negatives <= beam"
            )
        if self.train_documents and self.vectors == "index":
            raise ObjectiveError(
                "found train_documents=True and vectors='index': stored vectors teach their tower nothing, wanted "
                "vectors='batch', or 'blocks' for a small beam"
            )
        if self.retriever.shared and not self.train_documents:
            raise ObjectiveError(
                "found retriever.shared=True and train_documents=False: one tower cannot move for questions and stay "
                "for blocks, wanted retriever.shared=False (it may start from a shared one)"
            )

    @property
    def trained_read(self) -> int:
        return self.read if self.read_in_training is None else self.read_in_training

    @property
    def candidates(self) -> int:
        """Columns of a retrieval: the beam, and the null block, which is dropped."""
        return self.beam + 1

    def init(self, key: Any) -> Params:
        retriever_key, joint_key = jax.random.split(key)
        return {
            "retriever": dual_encoder(self.retriever).init(retriever_key),
            "joint": span_reader(self.joint).init(joint_key),
        }

    def groups(self) -> dict[str, str]:
        """What is trained, by path; a frozen block tower is in no group, so that weight decay spares it too."""
        return {"retriever" if self.train_documents else "retriever/query": "retriever", "joint": "joint"}

    def frozen(self, params: Params) -> Params:
        """The parameters that training must not change, {} if there are none; `tree_hash` of them is the proof."""
        return {} if self.train_documents else {"block": params["retriever"]["block"]}

    def taken(self, part: str, own: Params, earlier: Params) -> Params:
        """`own`, parameters of `part`, started from an `earlier` run's: of realm, ict or open_qa for "retriever", of
        realm, mlm or open_qa for "joint".

        A shared tower becomes two equal ones. Of a masked language model the BERT is taken, the span head stays.
        """
        if part != "retriever":
            return earlier if "out" in earlier.get("head", {}) else own | {"bert": earlier["bert"]}
        if self.retriever.shared or "tower" not in earlier:
            return earlier
        return {"query": earlier["tower"], "block": jax.tree.map(jnp.copy, earlier["tower"])}

    def units(self, corpus: BlockTable, heldout: bool | None = False) -> QuestionUnits:
        return QuestionUnits.read(self.questions, corpus, max_tokens=self.batch_lengths[-1], heldout=heldout)

    def example(self, unit: QuestionUnit, rng: np.random.Generator | None, length: int) -> Arrays:
        """[CLS] question [SEP]; its answers and its document's rows travel as `host_` arrays, which no device sees."""
        token_BT, length_B = pack_queries([unit.token_T], length, unit.special)
        return {
            "query_token_T": token_BT[0],
            "query_length": length_B[0],
            "own": np.int32(-1),
            "host_answers": _whole(unit.answers),
            "host_rows": _whole(unit.row_R),
        }

    def embed_queries(self, params: Params, batch: Arrays, key: Any = None) -> jax.Array:
        """q_BE float32 of questions; needs `params["retriever"]` only."""
        return dual_encoder(self.retriever).apply(
            params["retriever"], "embed_queries", batch["query_token_BT"], batch["query_length_B"], key=key
        )

    def embed_items(self, params: Params, blocks: Arrays, key: Any = None) -> jax.Array:
        """v_NE float32 of packed blocks (token_NT, length_N, body_N); needs `params["retriever"]` only."""
        return dual_encoder(self.retriever).apply(
            params["retriever"], "embed_blocks", blocks["token_NT"], blocks["length_N"], blocks["body_N"], key=key
        )

    def found(self, batch: Arrays, retrieved: Any) -> Arrays:
        """The batch with its beam: blocks to read, vectors to score, and, where answers are known, what is correct.

        slot_BK, and for stored vectors vector_UE and vector_slot_BL; valid_BL, correct_BL; gold_BKWT marks the spans
        that are an answer, every match of every one, within the block as it is packed. In-batch also ignored_BL, see
        `batch_beam`.
        """
        id_BL, valid_BL = (array[:, 1:] for array in retrieved.candidates[:2])
        told = "host_answers_B" in batch
        read = self.trained_read if told else self.read
        if told and self.vectors == "batch":
            beam = batch_beam(
                retrieved, batch["host_answers_B"], batch["host_rows_B"], read=read, negatives=self.negatives
            )
            ready, match_BK = batch | beam.arrays, beam.match_BK
            if not self.train_documents:
                ready |= {
                    "vector_UE": stored_vectors(retrieved.vectors, beam.row_U),
                    "vector_slot_BL": ready["slot_BK"],
                }
        else:
            packed = retrieved.pack(None if self.vectors == "blocks" else 1 + read)
            ready = batch | {name: packed[name] for name in ("block_token_UT", "block_length_U", "block_body_U")}
            ready |= {"slot_BK": packed["slot_BK"][:, 1:], "valid_BL": valid_BL}
            if self.vectors != "blocks":
                ready |= beam_vectors(retrieved.vectors, id_BL, valid_BL, retrieved.sizes)
            if told:
                ready["correct_BL"] = retrieved.places.match(id_BL, valid_BL, batch["host_answers_B"])
                match_BK = ready["correct_BL"][:, :read]
        if told:
            ready["gold_BKWT"] = gold_spans(
                retrieved.places, id_BL, match_BK, ready, batch["host_answers_B"], self.joint.answer_length
            )
        return ready

    def beam_scores(self, params: Params, batch: Arrays, key: Any = None) -> jax.Array:
        """score_BL: inner products of the current questions with the beam's blocks, without temperature."""
        query_key, block_key = (None, None) if key is None else jax.random.split(key)
        q_BE = self.embed_queries(params, batch, query_key)
        if "vector_UE" in batch:
            v_UE, slot_BL = batch["vector_UE"], batch["vector_slot_BL"]
        elif self.train_documents:
            v_UE, slot_BL = self.embed_items(params, block_arrays(batch), block_key), batch["slot_BK"]
        else:  # a frozen tower's, as the index would have them: no dropout, no gradient
            v_UE, slot_BL = jax.lax.stop_gradient(self.embed_items(params, block_arrays(batch))), batch["slot_BK"]
        # As precise as the exact index: scores near 128 lose whole units in TF32 or bf16 passes.
        score_BU = jnp.einsum("be,ue->bu", q_BE, v_UE, precision=jax.lax.Precision.HIGHEST)
        return jnp.take_along_axis(score_BU, slot_BL, axis=1)

    def scores(self, params: Params, batch: Arrays, key: Any = None) -> jax.Array:
        """[B, 1 + L]: the beam's scores behind a column for the null block, which never wins."""
        return jnp.pad(self.beam_scores(params, batch, key), ((0, 0), (1, 0)), constant_values=MASKED)

    def span_scores(self, params: Params, batch: Arrays, score_BL: jax.Array, key: Any = None, read: int = 0):
        """(score_BKWT, valid_BKWT) of all spans of the blocks read: [CLS] question [SEP] body [SEP], without title.

        read: how many blocks, 0 for `self.read`.
        """
        read = read or self.read
        slot_BK = batch["slot_BK"][:, :read]
        inputs = reader_inputs(batch | {"slot_BK": slot_BK}, self.joint.bert.positions)
        skip = batch["query_token_BT"].shape[1]
        score_FWT = span_reader(self.joint).apply(params["joint"], "spans", **inputs, key=key, skip=skip)
        score_BKWT = score_FWT.reshape(*slot_BK.shape, *score_FWT.shape[1:])
        if self.block_score:
            score_BKWT = score_BKWT + score_BL[:, :read, None, None]
        body_length_BK = (batch["block_length_U"] - batch["block_body_U"])[slot_BK] - 1  # its [SEP] is no answer
        valid_BKWT = spans_inside(body_length_BK, *score_FWT.shape[1:])
        return score_BKWT, valid_BKWT & batch["valid_BL"][:, :read, None, None]

    def loss(self, params: Params, batch: Arrays, key: Any) -> tuple[jax.Array, Metrics]:
        """Negative log-likelihood of retriever and reader in nats, a mean over the questions with anything correct.

        no_correct_block, no_correct_span: shares of all questions, whose part of the loss is 0. retriever_loss,
        reader_loss: the two parts. top_block, top_span: share of all questions where the best one is correct. Of blocks
        all this is within the beam, in-batch within the batch: modes do not compare.
        """
        score_key, reader_key = (None, None) if key is None else jax.random.split(key)
        score_BL = self.beam_scores(params, batch, score_key)
        valid_BL = batch["valid_BL"] & ~batch.get("ignored_BL", jnp.zeros((), bool))
        blocks = marginal_log_likelihood(score_BL, valid_BL, batch["correct_BL"])
        score_BKWT, valid_BKWT = self.span_scores(params, batch, score_BL, reader_key, self.trained_read)
        gold_BX, score_BX, valid_BX = (a.reshape(len(a), -1) for a in (batch["gold_BKWT"], score_BKWT, valid_BKWT))
        spans = marginal_log_likelihood(score_BX, valid_BX, gold_BX)
        # A correct span stands in a correct block, or in one that is ignored: a question is one for either part.
        count = (blocks.found_B | spans.found_B).sum().astype(jnp.float32)
        parts = [-likelihood.log_prob_B.sum() / jnp.maximum(count, 1.0) for likelihood in (blocks, spans)]
        top_B1 = jnp.where(valid_BL, score_BL, MASKED).argmax(axis=1)[:, None]
        best_B1 = jnp.where(valid_BX, score_BX, MASKED).argmax(axis=1)[:, None]
        return parts[0] + parts[1], {
            "weight": count,
            "retriever_loss": parts[0],
            "reader_loss": parts[1],
            "no_correct_block": 1.0 - blocks.found_B.mean(),
            "no_correct_span": 1.0 - spans.found_B.mean(),
            "top_block": jnp.take_along_axis(batch["correct_BL"], top_B1, axis=1).mean(),
            "top_span": jnp.take_along_axis(gold_BX, best_B1, axis=1).mean(),
        }

    def best(self, params: Params, batch: Arrays, count: int = 1) -> dict[str, jax.Array]:
        """The `count` best spans of all blocks read, as BestSpans gives them, [B, n].

        Of each also block_log_prob_Bn, log p(z|x) over the beam, and span_log_prob_Bn, log p(y|z,x) within its block.
        """
        score_BL = self.beam_scores(params, batch)
        score_BKWT, valid_BKWT = self.span_scores(params, batch, score_BL)
        best = best_spans(score_BKWT, valid_BKWT, count)
        masked_BKWT = jnp.where(valid_BKWT, score_BKWT, MASKED)
        log_all_BK = jax.nn.logsumexp(masked_BKWT, axis=(2, 3))
        log_block_BK = log_all_BK - jax.nn.logsumexp(log_all_BK, axis=1, keepdims=True)
        return best._asdict() | {
            "block_log_prob_Bn": jnp.take_along_axis(log_prior(score_BL, batch["valid_BL"]), best.block_Bn, axis=1),
            "span_log_prob_Bn": best.log_prob_Bn - jnp.take_along_axis(log_block_BK, best.block_Bn, axis=1),
        }


def _whole(value: Any) -> np.ndarray:
    """An array of one object, so that a batch stacks objects, whatever they hold."""
    array = np.empty((), object)
    array[()] = value
    return array
