"""attention_received and attention_map against the table of weights that a call gives whole."""

import re

import numpy as np
import pytest

import mha


def former(options, q_len=70, kv_len=90, seed=1):
    rng = np.random.default_rng(seed)
    q = rng.standard_normal((2, q_len, 4, 8)).astype(np.float32)
    k, v = (rng.standard_normal((2, kv_len, 2, 8)).astype(np.float32) for _ in range(2))
    got = mha.attention_forward(q, k, v, return_lse=True, return_weights=True, **options)
    return q, k, got.lse, got.weights.astype(np.float64)


@pytest.mark.parametrize("options", [{}, {"mask": mha.causal(), "align": "bottom_right"}, {"softcap": 2.0, "sink_logits": [0.0, 1.0, 2.0, 3.0]},
                                     {"kv_lengths": [90, 31]}])
def test_sums_and_cells_are_those_of_the_table(options):
    q, k, lse, table = former(options)
    np.testing.assert_allclose(mha.attention_received(q, k, lse, **options), table.sum(2), rtol=2e-5, atol=1e-30)
    rows, columns = 7, 11
    found = mha.attention_map(q, k, lse, 3, 1, shape=(rows, columns), **options)
    whole = table[1, 3]
    for r in range(rows):
        for c in range(columns):
            cell = whole[r * 70 // rows:(r + 1) * 70 // rows, c * 90 // columns:(c + 1) * 90 // columns]
            np.testing.assert_allclose(found.mean[r, c], cell.mean(), rtol=2e-5, atol=1e-30)
            np.testing.assert_allclose(found.max[r, c], cell.max(), rtol=2e-5, atol=1e-30)


def test_a_map_of_one_pair_per_cell_is_the_rectangle():
    q, k, lse, _ = former({})
    found = mha.attention_map(q, k, lse, 2, 0, queries=(5, 25), keys=(30, 90))  # of at most 512 x 512: as large as the rectangle
    weights = mha.attention_weights(q, k, lse, 2, 0, queries=(5, 25), keys=(30, 90))
    assert found.mean.shape == (20, 60)
    np.testing.assert_array_equal(found.mean, weights)
    np.testing.assert_array_equal(found.max, weights)


def test_empty_rectangles():
    q, k, lse, _ = former({})
    assert mha.attention_weights(q, k, lse, 0, queries=(3, 3)).shape == (0, 90)
    assert mha.attention_map(q, k, lse, 0, queries=(3, 3)).mean.shape == (0, 90)
    assert mha.attention_map(q, k, lse, 0, shape=(0, 5)).max.shape == (0, 5)
    assert mha.attention_received(q[:0], k[:0], lse[:0]).shape == (0, 4, 90)


def test_bad_input():
    q, k, lse, _ = former({})
    for call, error, text in (
        (lambda: mha.attention_map(q, k, lse, 4), ValueError, "attention_map: head 4 of 4"),
        (lambda: mha.attention_map(q, k, lse, 0, shape=(3,)), ValueError, "shape is (3,), must be (rows, columns)"),
        (lambda: mha.attention_map(q, k, lse, 0, shape=(-1, 3)), ValueError, "must be (rows, columns)"),
        (lambda: mha.attention_map(q, k, lse, 0, keys=(0, 91)), ValueError, "keys is (0, 91), must lie in 0 to 90"),
        (lambda: mha.attention_received(q, k, lse[:, :2]), ValueError, "attention_received: lse has shape [2, 2, 70], must be [2, 4, 70]"),
        (lambda: mha.attention_received(q, k, lse, windows=3), TypeError, "unexpected argument windows"),
        (lambda: mha.attention_received(q, k, lse, mask=mha.causal()), ValueError, "needs align"),
        (lambda: mha.attention_received(q.astype(np.float64), k.astype(np.float64), lse), TypeError, "q is f64"),
    ):
        with pytest.raises(error, match=re.escape(text)):
            call()
