"""Faults that other layers had, in MultiheadAttention: a test per line of ../shared/known_faults.md, named after it, which
tests/known_faults.txt names."""

import re

import numpy as np
import oracle
import pytest
from layers import near, plain, small

import mha

INF = np.inf


def test_a2_whole_tiles_hidden_for_late_rows(random):
    layer = mha.MultiheadAttention(4, 1, batch_first=True).eval()
    x = random.standard_normal((1, 640, 4)).astype(np.float32)
    i, j = np.ogrid[:640, :640]
    hidden = (j > i) | (j <= i - 10)
    mask = np.where(hidden, -INF, 0).astype(np.float32)
    y, none = layer(x, x, x, need_weights=False, attn_mask=mask)
    assert none is None
    wanted, weights = plain(layer, x, ~hidden)
    assert near(y, wanted, 4)
    assert near(layer(x, x, x, attn_mask=mask)[1], weights[:, 0], 4)


def test_a10_a9_rows_that_see_nothing(random):
    layer, x = small(random, batch=1)
    hidden = np.zeros((3, 5, 5), bool)
    hidden[2] = True
    y, weights = layer(x, x, x, attn_mask=hidden, average_attn_weights=False)
    np.testing.assert_array_equal(layer(x, x, x, attn_mask=hidden, need_weights=False)[0], y)
    np.testing.assert_array_equal(weights[:, 2], 0)
    assert np.isfinite(y).all() and np.isfinite(weights).all()
    wanted, _ = plain(layer, x, ~hidden[None])
    assert near(y, wanted)
    # A9: two masks that only together hide all of a row.
    layer = mha.MultiheadAttention(1, 1).eval()
    x = random.standard_normal((3, 2, 1)).astype(np.float32)
    table = np.array([[0, -INF, -INF], [0, 0, -INF], [-INF, 0, 0]], np.float32)
    y, weights = layer(x, x, x, key_padding_mask=np.array([[False] * 3, [False, True, True]]), attn_mask=table)
    np.testing.assert_array_equal(weights[1, 2], 0)
    np.testing.assert_array_equal(y[2, 1], layer.state_dict()["out_proj.bias"])
    assert np.isfinite(y).all()


def test_a14_heads_of_a_mask_are_number_batch_times_heads_plus_head(random):
    layer, x = small(random)
    hidden = random.random((2, 3, 5, 5)) < 0.4
    hidden[..., 0] = False
    y, weights = layer(x, x, x, attn_mask=hidden.reshape(6, 5, 5), average_attn_weights=False)
    wanted, exact = plain(layer, x, ~hidden)
    assert near(y, wanted)
    np.testing.assert_array_equal(weights != 0, ~hidden)
    for b in range(2):  # a sample does not depend on its batch mates
        alone = layer(x[b:b + 1], x[b:b + 1], x[b:b + 1], attn_mask=hidden[b])
        np.testing.assert_array_equal(alone[0][0], y[b])


def test_a17_true_means_ignore_here_and_attend_there(random):
    layer, x = small(random)
    table = random.random((5, 5)) < 0.5
    table[:, 0] = False
    _, weights = layer(x, x, x, attn_mask=table, average_attn_weights=False)
    np.testing.assert_array_equal(weights != 0, np.broadcast_to(~table, weights.shape))
    q = x.reshape(2, 5, 3, 4).swapaxes(1, 2)
    there = mha.scaled_dot_product_attention(q, q, q, attn_mask=~table, return_weights=True).weights
    np.testing.assert_array_equal(there != 0, np.broadcast_to(~table, there.shape))


def test_a18_a_mask_of_floats_zero_and_one_is_added(random):
    layer = mha.MultiheadAttention(6, 2).eval()
    ones = np.ones((8, 1, 6), np.float32)
    lower = np.tril(np.ones((8, 8), np.float32))
    _, added = layer(ones, ones, ones, attn_mask=lower)
    assert (added > 0).all()
    row = np.exp(lower.astype(np.float64))
    np.testing.assert_allclose(added[0], row / row.sum(-1, keepdims=True), rtol=oracle.tolerance("float32", 3, 8))
    _, hidden = layer(ones, ones, ones, attn_mask=lower == 0)
    np.testing.assert_array_equal(hidden[0] != 0, lower != 0)


def test_a19_a81_padding_of_minus_infinity_is_padding(random):
    layer, x = small(random)
    padding = np.array([[False] * 5, [False, False, True, True, True]])
    floats = np.where(padding, -INF, 0).astype(np.float32)
    for attn_mask in (None, np.triu(np.ones((5, 5), bool), 1), np.where(np.triu(np.ones((5, 5)), 1) > 0, -INF, 0).astype(np.float32)):
        wanted = layer(x, x, x, padding, attn_mask=attn_mask)
        found = layer(x, x, x, floats, attn_mask=attn_mask)
        np.testing.assert_array_equal(found[0], wanted[0])
        np.testing.assert_array_equal(found[1], wanted[1])
        np.testing.assert_array_equal(found[1][1, :, 2:], 0)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"embed_dim": 8, "num_heads": 0}, ValueError, "num_heads is 0, must be at least 1"),
        ({"embed_dim": 0, "num_heads": 1}, ValueError, "embed_dim is 0, must be at least 1"),
        ({"embed_dim": 8, "num_heads": 3}, ValueError, "embed_dim 8 is not a multiple of num_heads 3"),
        ({"embed_dim": 8, "num_heads": 2, "kdim": 0}, ValueError, "kdim is 0, must be at least 1"),
        ({"embed_dim": 8.0, "num_heads": 2}, TypeError, "embed_dim is 8.0, must be an integer"),
        ({"embed_dim": 8, "num_heads": 2, "dropout": 1.5}, ValueError, "dropout probability is 1.5, must be in [0, 1]"),
        ({"embed_dim": 8, "num_heads": 2, "dropout": "much"}, (TypeError, ValueError), "much"),
        ({"embed_dim": 8, "num_heads": 2, "dtype": np.int32}, TypeError, "dtype is int32, must be float32, float64, float16 or bfloat16"),
        ({"embed_dim": 8, "num_heads": 2, "device": "cuda"}, ValueError, "device is cuda, must be the CPU"),
    ],
)
def test_a30_layers_that_cannot_be(arguments, error, text):
    with pytest.raises(error, match=re.escape(text)):
        mha.MultiheadAttention(**arguments)


def test_a44_padding_in_training_gives_no_nan(random):
    """MHA(20, 5, dropout=0.1).train() with lengths 5, 3, 1 and 0."""
    layer = mha.MultiheadAttention(20, 5, dropout=0.1, batch_first=True)
    x = random.standard_normal((4, 5, 20)).astype(np.float32)
    padding = np.arange(5) >= np.array([[5], [3], [1], [0]])
    y, weights = layer(x, x, x, padding, average_attn_weights=False)
    assert np.isfinite(y).all() and np.isfinite(weights).all()
    np.testing.assert_array_equal(weights[3], 0)
    np.testing.assert_array_equal(y[3], np.broadcast_to(layer.state_dict()["out_proj.bias"], (5, 20)))
    kept = layer.eval()(x, x, x, padding, average_attn_weights=False)[1]
    assert (np.abs(weights.sum(-1)[:3] - 1) > 1e-3).any(), "weights of training are those after dropout"
    np.testing.assert_allclose(kept.sum(-1)[:3], 1, rtol=oracle.tolerance("float32", 4, 5))
    survivors = weights != 0
    np.testing.assert_allclose(weights[survivors], kept[survivors] / 0.9, rtol=2 * oracle.tolerance("float32", 4, 5))


def test_a45_zero_attention_has_one_more_column(random):
    layer = mha.MultiheadAttention(8, 2, add_zero_attn=True, batch_first=True).eval()
    x = random.standard_normal((1, 6, 8)).astype(np.float32)
    mask = np.triu(np.full((6, 6), -1e4, np.float32))  # strict: a token does not see itself
    y, weights = layer(x, x, x, attn_mask=mask, average_attn_weights=False)
    assert weights.shape == (1, 2, 6, 7)
    np.testing.assert_array_equal(weights[0, :, 0, :6], 0)
    np.testing.assert_array_equal(weights[0, :, 0, 6], 1)
    moved = x.copy()
    moved[0, 1] += 1  # row 1 depends on x[1] through its query alone, keys from 1 on reach nothing
    found = layer(moved, x, x, attn_mask=mask)[0]
    assert not np.array_equal(found[0, 1], y[0, 1])
    moved = x.copy()
    moved[0, 1:] += 1
    np.testing.assert_array_equal(layer(x, moved, moved, attn_mask=mask)[0][0, :2], y[0, :2])


def test_a46_batch_first_is_a_matter_of_axes(random):
    first = mha.MultiheadAttention(12, 3, batch_first=True).eval()
    second = mha.MultiheadAttention(12, 3).eval()
    second.load_state_dict(first.state_dict())
    q, k = random.standard_normal((2, 7, 12)).astype(np.float32), random.standard_normal((2, 4, 12)).astype(np.float32)
    mask = random.random((7, 4)) < 0.3
    y, weights = first(q, k, k, attn_mask=mask)
    turned, same = second(q.swapaxes(0, 1), k.swapaxes(0, 1), k.swapaxes(0, 1), attn_mask=mask)
    assert turned.shape == (7, 2, 12)
    np.testing.assert_array_equal(turned.swapaxes(0, 1), y)
    np.testing.assert_array_equal(same, weights)


def test_a62_evaluation_drops_nothing(random):
    layer, x = small(random, dropout=0.9)
    wanted, _ = plain(layer, x)
    assert near(layer(x, x, x, need_weights=False)[0], wanted)


def test_a82_same_masks_in_training_and_evaluation(random):
    layer = mha.MultiheadAttention(4, 4, batch_first=True)
    x = random.standard_normal((2, 8, 4)).astype(np.float32)
    padding = np.arange(8) >= np.array([[8], [6]])
    table = np.broadcast_to(np.triu(np.ones((8, 8), bool), 1), (8, 8, 8))
    trained = layer(x, x, x, padding, attn_mask=table)
    evaluated = layer.eval()(x, x, x, padding, attn_mask=table)
    for found, wanted in zip(trained, evaluated):
        np.testing.assert_array_equal(found, wanted)


def test_a83_padding_of_the_other_axis_order_is_refused(random):
    x = np.zeros((20, 6, 16), np.float32)
    with pytest.raises(ValueError, match=re.escape("key_padding_mask has shape [20, 6], must be [6, 20]")):
        mha.MultiheadAttention(16, 2)(x, x, x, key_padding_mask=np.zeros((20, 6), bool))


def test_a84_without_biases_in_evaluation(random):
    layer = mha.MultiheadAttention(10, 1, bias=False, batch_first=True).eval()
    x = random.standard_normal((1, 5, 10)).astype(np.float32)
    wanted, _ = plain(layer, x)
    assert near(layer(x, x, x)[0], wanted, 10)
