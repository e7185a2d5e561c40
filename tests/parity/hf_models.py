"""Tiny random models of Hugging Face, and how their numbers are held against ours."""

import jax
import numpy as np
import torch
from transformers import BertConfig, RealmConfig

from realm.models.weights import names

SIZES = dict(
    vocab_size=60,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=48,
    max_position_embeddings=40,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    initializer_range=0.3,
)
REALM_SIZES = SIZES | dict(retriever_proj_size=12, num_candidates=3, span_hidden_size=10, max_span_width=4)
CLOSE = 1e-4


def bert_sizes(**changes):
    return BertConfig(**SIZES | changes)


def realm_sizes(**changes):
    return RealmConfig(**REALM_SIZES | changes)


def shaken_model(build, config, seed=0):
    """The model in evaluation mode with every parameter moved, so that no bias is 0 and no gain is 1."""
    torch.manual_seed(seed)
    model = build(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def save(model, folder):
    """The folder as the class itself writes it."""
    model.save_pretrained(folder)
    return f"hf:{folder}"


def reload(build, folder):
    """(model in evaluation mode, names it misses, names it does not know)."""
    model, info = build.from_pretrained(folder, output_loading_info=True)
    return model.eval(), sorted(info["missing_keys"]), sorted(info["unexpected_keys"])


def near(found, expected, close=CLOSE):
    """Asserts that no number is off by more than `close` of the largest one."""
    if isinstance(expected, torch.Tensor):
        expected = expected.detach().numpy()
    found = np.asarray(found)
    assert found.shape == expected.shape
    off, size = np.abs(found - expected).max(), np.abs(expected).max()
    assert size > 0 and off <= close * size, f"off by {off:.3g} where the largest is {size:.3g}"


def gradient_tree(model, places, outer="", stem=""):
    """The model's gradients as a tree of ours; 0 where backward left none."""
    own = dict(model.named_parameters())
    tree = {}
    for place in places:
        parameter = own[outer + (stem if place.keys[0] == "bert" else "") + place.name]
        grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        names.put(tree, place, grad.numpy())
    return tree


def near_gradients(found, expected, still=()):
    """Asserts `near` for every array of two trees.

    Gradients that are 0 in exact arithmetic are rounding noise in both, and held against the largest gradient of the
    tree: the bias of the keys, which moves all scores of a softmax alike, a pooler nobody reads, and the paths `still`.
    """
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    largest = max(np.abs(leaf).max() for leaf in jax.tree.leaves(expected))
    for (path, theirs), ours in zip(jax.tree_util.tree_leaves_with_path(expected), jax.tree.leaves(found), strict=True):
        name = "/".join(str(step.key) for step in path)
        if np.abs(theirs).max() < 1e-6 * largest:
            assert name.endswith("key/bias") or "/pooler/" in name or name in still, name
            assert np.abs(ours).max() < 1e-6 * largest, name
        else:
            near(ours, theirs)


def same_answer(found, expected):
    """Asserts equality up to the rounding of sums, which hangs on where in memory the weights happen to lie."""
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def same_weights(found, expected, but=()):
    """Asserts that two models of Hugging Face have the same bits, except for the names `but`."""
    state = found.state_dict()
    for name, tensor in expected.state_dict().items():
        assert name in but or torch.equal(state[name], tensor), name
