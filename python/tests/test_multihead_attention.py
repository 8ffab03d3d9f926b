"""MultiheadAttention against torch.nn.MultiheadAttention (where torch is installed), against its goldens (without it), the known faults of
other implementations, and bad input."""

import collections
import itertools
import re
import subprocess
import sys
import warnings

import goldens
import numpy as np
import oracle
import pytest

import mha

INF = np.inf


def layer_of(golden, **arguments):
    """A layer with a golden's weights, in evaluation."""
    width = golden["x"].shape[2]
    key, value = golden.get("key"), golden.get("value")
    layer = mha.MultiheadAttention(
        width,
        golden["heads"],
        bias="in_proj_bias" in golden,
        add_bias_kv="bias_k" in golden,
        add_zero_attn=golden["zero_key"],
        kdim=None if key is None else key.shape[2],
        vdim=None if value is None else value.shape[2],
        dtype=golden["x"].dtype,
        **arguments,
    )
    layer.load_state_dict({name: golden[name] for name in layer.state_dict()})
    return layer.eval()


def masks_of(golden):
    """The golden's masks as torch was given them: True = ignore, no columns for appended keys, [batch * heads, q_len, kv_len]."""
    batch, q_len = golden["x"].shape[:2]
    kv_len = golden.get("key", golden["x"]).shape[1]
    if "kv_lengths" in golden:
        return {"key_padding_mask": np.arange(kv_len) >= golden["kv_lengths"][:, None]}
    table = ~golden["allowed"] if "allowed" in golden else golden.get("bias")
    if table is None:
        return {}
    full = np.broadcast_to(table[..., :kv_len], (batch, golden["heads"], q_len, kv_len))
    return {"attn_mask": full.reshape(-1, q_len, kv_len)}


def small(random, batch=2, length=5, width=12, **arguments):
    """A layer with random weights, biases too, in evaluation, and an input [batch, length, width]."""
    layer = mha.MultiheadAttention(width, 3, batch_first=True, **arguments).eval()
    layer.load_state_dict({name: random.standard_normal(array.shape).astype(array.dtype) for name, array in layer.state_dict().items()})
    return layer, random.standard_normal((batch, length, width)).astype(np.float32)


def plain(layer, x, seen=True, bias=0.0):
    """(result, weights per head) of a layer with packed weights, in float64, from the definition; seen and bias [batch, heads, q, k]."""
    state = {name: np.asarray(array, np.float64) for name, array in layer.state_dict().items()}
    projected = x.astype(np.float64) @ state["in_proj_weight"].T + state.get("in_proj_bias", 0)
    q, k, v = (part.reshape(*x.shape[:2], layer.num_heads, -1).swapaxes(1, 2) for part in np.split(projected, 3, -1))
    out, _, weights = oracle.attend(q, k, v, seen, bias)
    return out.swapaxes(1, 2).reshape(x.shape) @ state["out_proj.weight"].T + state.get("out_proj.bias", 0), weights


def near(found, wanted, width=12, dtype=np.float32):
    # Weights here are standard normal, scores up to 40 or so: five times what the goldens' bound allows for scores of 8.
    return goldens.error(found, wanted) <= 5 * goldens.bound(width, dtype)


# ---- without torch


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", goldens.LAYERS)
def test_goldens(name, dtype):
    golden = goldens.layer(name, dtype)
    x = golden["x"]
    key = golden.get("key", x)
    value = golden.get("value", key)
    masks = masks_of(golden)
    limit = goldens.bound(max(x.shape[2], key.shape[2]), dtype)
    y, weights = layer_of(golden, batch_first=True)(x, key, value, average_attn_weights=False, **masks)
    assert y.dtype == weights.dtype == dtype
    assert goldens.error(y, golden["y"]) <= limit and goldens.error(weights, golden["weights"]) <= limit
    length_first = layer_of(golden)
    y, mean = length_first(x.swapaxes(0, 1), key.swapaxes(0, 1), value.swapaxes(0, 1), **masks)
    assert goldens.error(y.swapaxes(0, 1), golden["y"]) <= limit and goldens.error(mean, golden["weights"].mean(1)) <= limit
    without, none = length_first(x.swapaxes(0, 1), key.swapaxes(0, 1), value.swapaxes(0, 1), need_weights=False, **masks)
    assert none is None
    np.testing.assert_array_equal(without, y)


def test_works_without_torch():
    program = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ImportError(name)

sys.meta_path.insert(0, NoTorch())
import numpy as np, mha
assert "torch" not in sys.modules
layer = mha.MultiheadAttention(8, 2, dropout=0.5, add_bias_kv=True)
x = np.ones((3, 2, 8), np.float32)
y, weights = layer(x, x, x, attn_mask=np.zeros((3, 3), bool))
assert type(y) is np.ndarray and weights.shape == (2, 3, 4)
assert layer.load_state_dict(layer.state_dict()) == ([], [])
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_unbatched_is_a_batch_of_one(random):
    for batch_first in (False, True):
        layer = mha.MultiheadAttention(12, 3, batch_first=batch_first, kdim=7, vdim=5).eval()
        q, k, v = (random.standard_normal(shape).astype(np.float32) for shape in ((4, 12), (6, 7), (6, 5)))
        mask, padding = random.random((3, 4, 6)) < 0.3, np.array([False] * 4 + [True] * 2)
        y, weights = layer(q, k, v, padding, True, mask, False)
        axis = 0 if batch_first else 1
        batched = layer(*(np.expand_dims(array, axis) for array in (q, k, v)), padding[None], True, mask, False)
        assert y.shape == (4, 12) and weights.shape == (3, 4, 6)
        np.testing.assert_array_equal(y, batched[0].squeeze(axis))
        np.testing.assert_array_equal(weights, batched[1][0])
        assert layer(q, k, v)[1].shape == (4, 6)


def test_weights_in_training_are_those_after_dropout(random):
    """Each weight is 0 or that of evaluation times 1 / (1 - p), and the result is made of them."""
    p, batch, length, width = 0.3, 2, 40, 12
    layer, x = small(random, batch, length, dropout=p, add_bias_kv=True)
    attn, padding = random.standard_normal((length, length)).astype(np.float32), np.arange(length) >= np.array([[length], [length - 5]])
    still, kept = layer(x, x, x, padding, True, attn, False)
    np.random.seed(11)
    y, dropped = layer.train()(x, x, x, padding, True, attn, False)
    assert dropped.shape == (batch, 3, length, length + 1)
    survivors = dropped != 0
    np.testing.assert_allclose(dropped[survivors], kept[survivors] / (1 - p), rtol=2 * oracle.tolerance("float32", 4, length, 40), atol=2.0**-125)
    visible = kept > 2.0**-100  # what lies below 2^-126 may be 0
    share, count = survivors[visible].mean(), visible.sum()
    assert abs(share - (1 - p)) <= 5 * np.sqrt(p * (1 - p) / count)
    state = {name: array.astype(np.float64) for name, array in layer.state_dict().items()}
    v = x @ state["in_proj_weight"][2 * width:].T + state["in_proj_bias"][2 * width:]
    v = np.concatenate([v, np.broadcast_to(state["bias_v"][0], (batch, 1, width))], 1).reshape(batch, length + 1, 3, 4).swapaxes(1, 2)
    wanted = (dropped @ v).swapaxes(1, 2).reshape(x.shape) @ state["out_proj.weight"].T + state["out_proj.bias"]
    assert near(y, wanted)
    assert goldens.error(y, still) > 0.05
    # The seed is NumPy's: drawn anew for each call, the same after the same seed, whether or not weights are wanted.
    assert not np.array_equal(layer(x, x, x, padding, False, attn)[0], y)
    np.random.seed(11)
    np.testing.assert_array_equal(layer(x, x, x, padding, False, attn)[0], y)
    np.testing.assert_array_equal(layer.eval()(x, x, x, padding, True, attn)[0], still)


def test_all_dropped(random):
    layer, x = small(random, dropout=1.0)
    y, weights = layer.train()(x, x, x)
    np.testing.assert_array_equal(weights, 0)
    np.testing.assert_array_equal(y, np.broadcast_to(layer.state_dict()["out_proj.bias"], y.shape))


def test_train_and_eval():
    layer = mha.MultiheadAttention(8, 2, dropout=0.1)
    assert layer.training, "as in torch, a new layer trains"
    assert layer.eval() is layer and not layer.training
    assert layer.train() is layer and layer.training
    assert layer.dropout == pytest.approx(0.1) and layer.head_dim == 4
    assert repr(layer).startswith("MultiheadAttention(embed_dim=8, num_heads=2, dropout=0.1")


@pytest.mark.parametrize("arguments", [{}, {"kdim": 7}, {"bias": False}, {"add_bias_kv": True, "vdim": 9}])
def test_state_dict_goes_out_and_comes_back(random, arguments):
    first, second = (mha.MultiheadAttention(12, 3, seed=seed, **arguments).eval() for seed in (1, 2))
    kdim, vdim = arguments.get("kdim", 12), arguments.get("vdim", 12)
    q, k, v = (random.standard_normal((4, 2, width)).astype(np.float32) for width in (12, kdim, vdim))
    assert not np.array_equal(first(q, k, v)[0], second(q, k, v)[0])
    assert second.load_state_dict(first.state_dict()) == ([], [])
    np.testing.assert_array_equal(first(q, k, v)[0], second(q, k, v)[0])
    np.testing.assert_array_equal(mha.MultiheadAttention(12, 3, seed=1, **arguments).eval()(q, k, v)[0], first(q, k, v)[0])


def test_state_dict_is_a_copy(random):
    layer, x = small(random)
    wanted = layer(x, x, x)[0]
    for array in layer.state_dict().values():
        array[...] = 0
    given = layer.state_dict()
    layer.load_state_dict(given)
    for array in given.values():
        array[...] = 0
    np.testing.assert_array_equal(layer(x, x, x)[0], wanted)


def test_load_state_dict_refuses_and_changes_nothing(random):
    layer, x = small(random)
    wanted, good = layer(x, x, x)[0], layer.state_dict()
    ones = {name: np.ones_like(array) for name, array in good.items()}
    missing = {name: array for name, array in ones.items() if name != "out_proj.bias"}
    for state, error, text in (
        (missing, ValueError, "load_state_dict: missing: out_proj.bias"),
        (ones | {"bias_k": np.ones((1, 1, 12)), "mine": np.ones(1)}, ValueError, "load_state_dict: unexpected: bias_k, mine"),
        ({"wq": np.ones(1)}, ValueError, "missing: in_proj_weight, in_proj_bias, out_proj.weight, out_proj.bias; unexpected: wq"),
        (ones | {"in_proj_weight": np.ones((12, 36))}, ValueError, "in_proj_weight has shape [12, 36], the layer's is [36, 12]"),
        (ones | {"out_proj.weight": np.ones((12, 12), np.int64)}, TypeError, "out_proj.weight is i64, must be f32, f64, f16 or bf16"),
        (ones | {"out_proj.weight": None}, TypeError, "out_proj.weight is a NoneType, must be an array"),
    ):
        with pytest.raises(error, match=re.escape(text)):
            layer.load_state_dict(state)
    with pytest.raises(ValueError, match="in_proj_bias has shape"):
        layer.load_state_dict(ones | {"in_proj_bias": np.ones(12)}, strict=False)
    np.testing.assert_array_equal(layer(x, x, x)[0], wanted)
    assert layer.load_state_dict({"out_proj.bias": np.full(12, 7.0), "mine": 1}, strict=False) == (
        ["in_proj_weight", "in_proj_bias", "out_proj.weight"], ["mine"])
    assert near(layer(x, x, x)[0] - 7, wanted - good["out_proj.bias"])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bits_round_once(random, dtype):
    kind = np.float16 if dtype == "float16" else pytest.importorskip("ml_dtypes").bfloat16
    narrow = mha.MultiheadAttention(12, 3, dtype=kind, batch_first=True, dropout=0.5).eval()
    wide = mha.MultiheadAttention(12, 3, batch_first=True).eval()
    wide.load_state_dict(narrow.state_dict())
    x = random.standard_normal((2, 5, 12)).astype(kind)
    mask = random.standard_normal((5, 5)).astype(kind)
    found = narrow(x, x, x, attn_mask=mask)
    wanted = wide(*(x.astype(np.float32),) * 3, attn_mask=mask.astype(np.float32))
    for got, exact in zip(found, wanted):
        assert got.dtype == kind
        np.testing.assert_array_equal(got, exact.astype(kind))
    assert narrow.train()(x, x, x)[1].dtype == kind
    with pytest.raises(TypeError, match="query is f32, the layer is"):
        narrow(*(x.astype(np.float32),) * 3)


def test_strides_change_nothing(random):
    layer, x = small(random, batch=3)
    wanted = layer(x, x, x)
    wide = np.full((3, 5, 24), np.nan, np.float32)
    wide[:, :, ::2] = x
    padding = np.zeros((5, 3), bool).T
    for array in (wide[:, :, ::2], np.asfortranarray(x), np.ascontiguousarray(x[::-1])[::-1]):
        for found, exact in zip(layer(array, array, array, key_padding_mask=padding), wanted):
            np.testing.assert_array_equal(found, exact)


def test_no_batch_no_rows_no_keys(random):
    layer, x = small(random, add_zero_attn=True)
    y, weights = layer(x[:0], x[:0], x[:0])
    assert y.shape == (0, 5, 12) and weights.shape == (0, 5, 6)
    y, weights = layer(x[:, :0], x, x)
    assert y.shape == (2, 0, 12) and weights.shape == (2, 0, 6)
    y, weights = layer(x, x[:, :0], x[:, :0])
    np.testing.assert_array_equal(y, np.broadcast_to(layer.state_dict()["out_proj.bias"], y.shape))
    np.testing.assert_array_equal(weights, 1)


# ---- faults that other implementations had (../shared/known_faults.md; tests/known_faults.txt names these tests)


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


# ---- bad input

ZEROS = {"query": np.zeros((5, 2, 8), np.float32), "key": np.zeros((6, 2, 8), np.float32), "value": np.zeros((6, 2, 8), np.float32)}


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"query": np.zeros((5, 2, 7), np.float32)}, ValueError, "query has shape [5, 2, 7], its last axis must be 8"),
        ({"query": np.zeros((1, 5, 2, 8), np.float32)}, ValueError, "query has shape [1, 5, 2, 8], query [1, 5, 2, 8]: all must have 3 axes, or 2 without batch"),
        ({"key": np.zeros((6, 8), np.float32)}, ValueError, "key has shape [6, 8], query [5, 2, 8]: all must have 3 axes"),
        ({"key": np.zeros((6, 3, 8), np.float32)}, ValueError, "key has batch 3 and length 6, must have query's batch 2 and key's length 6"),
        ({"value": np.zeros((5, 2, 8), np.float32)}, ValueError, "value has batch 2 and length 5, must have query's batch 2 and key's length 6"),
        ({"query": np.zeros((5, 2, 8))}, TypeError, "query is f64, the layer is f32"),
        ({"value": np.zeros((6, 2, 8), np.float16)}, TypeError, "value is f16, the layer is f32"),
        ({"query": np.zeros((5, 2, 8), np.int32)}, TypeError, "query is int32"),
        ({"query": [[1.0]]}, TypeError, "query is a list, must be an array"),
        ({"value": None}, TypeError, "value is a NoneType, must be an array"),
        ({"attn_mask": np.zeros((5, 5), bool)}, ValueError, "attn_mask has shape [5, 5], must be [5, 6] or [4, 5, 6]"),
        ({"attn_mask": np.zeros((1, 5, 6), bool)}, ValueError, "attn_mask has shape [1, 5, 6], must be [5, 6] or [4, 5, 6]"),
        ({"attn_mask": np.zeros((5, 6), np.int64)}, TypeError, "attn_mask is int64, must be bool (True = ignore) or floats"),
        ({"attn_mask": np.zeros((5, 6))}, TypeError, "attn_mask is f64, the layer is f32"),
        ({"attn_mask": "causal"}, TypeError, "attn_mask is a str, must be an array"),
        ({"key_padding_mask": np.zeros(6, bool)}, ValueError, "key_padding_mask has shape [6], must be [2, 6]"),
        ({"key_padding_mask": np.zeros((2, 6), np.complex64)}, TypeError, "key_padding_mask is complex64"),
        ({"is_causal": True}, ValueError, "attn_mask must be given with it"),
    ],
)
def test_calls_that_cannot_be(changes, error, text):
    layer = mha.MultiheadAttention(8, 2)
    with pytest.raises(error, match=re.escape(text)):
        layer(**(ZEROS | changes))
    assert layer(**ZEROS)[0].shape == (5, 2, 8)


def test_is_causal_is_a_hint_and_the_mask_decides(random):
    layer, x = small(random)
    mask = random.random((5, 5)) < 0.3
    for need_weights in (True, False):
        hinted = layer(x, x, x, attn_mask=mask, is_causal=True, need_weights=need_weights)[0]
        np.testing.assert_array_equal(hinted, layer(x, x, x, attn_mask=mask)[0])


# ---- with torch

MASKS = list(itertools.product(["none", "bool", "bool per head", "float", "float per head"], ["none", "bool", "float"]))
LAYERS = list(itertools.product([False, True], repeat=5))


def _torch_mask(torch, generator, kind, shape, dtype):
    hidden = torch.rand(shape, generator=generator) < 0.3
    hidden[..., 0] = False  # torch gives NaN for a row that sees nothing
    if kind.startswith("bool"):
        return hidden
    return torch.randn(shape, generator=generator, dtype=dtype).masked_fill(hidden, -INF)


@pytest.mark.parametrize(("attn", "padding"), MASKS)
def test_a_grid_of_layers_and_masks_agrees_with_torch(attn, padding):
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(MASKS.index((attn, padding)))
    width, heads, batch, q_len, kv_len = 12, 3, 2, 5, 6
    for number, (batch_first, widths, add_bias_kv, add_zero_attn, bias) in enumerate(LAYERS):
        dtype = (torch.float32, torch.float64)[number // 2 % 2]
        batched, average = number % 3 != 0, number % 5 != 0
        arguments = {"bias": bias, "add_bias_kv": add_bias_kv, "add_zero_attn": add_zero_attn, "batch_first": batch_first,
                     "kdim": 10 if widths else None, "vdim": 7 if widths else None, "dtype": dtype}
        theirs, ours = (kind(width, heads, **arguments).eval() for kind in (torch.nn.MultiheadAttention, mha.MultiheadAttention))
        with torch.no_grad():
            for parameter in theirs.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=dtype) / 2)
        ours.load_state_dict(theirs.state_dict())

        def draw(length, size):
            lead = (length,) if not batched else (batch, length) if batch_first else (length, batch)
            return torch.randn(*lead, size, generator=generator, dtype=dtype)

        q, k, v = draw(q_len, width), draw(kv_len, theirs.kdim), draw(kv_len, theirs.vdim)
        table = (heads * (batch if batched else 1), q_len, kv_len) if attn.endswith("head") else (q_len, kv_len)
        masks = {"attn_mask": None if attn == "none" else _torch_mask(torch, generator, attn, table, dtype),
                 "key_padding_mask": None if padding == "none" else
                 _torch_mask(torch, generator, padding, (batch, kv_len) if batched else (kv_len,), dtype)}
        for need_weights in (True, False):
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of masks of two kinds
                wanted = theirs(q, k, v, need_weights=need_weights, average_attn_weights=average, **masks)
                found = ours(q, k, v, need_weights=need_weights, average_attn_weights=average, **masks)
            assert isinstance(found[0], torch.Tensor) and found[0].shape == wanted[0].shape and found[0].dtype == dtype
            assert torch.isfinite(wanted[0]).all()
            assert near(found[0], wanted[0], width, str(dtype).removeprefix("torch.")), (number, need_weights)
            if need_weights:
                assert found[1].shape == wanted[1].shape and found[1].dtype == dtype
                assert near(found[1], wanted[1], width, str(dtype).removeprefix("torch."))
            else:
                assert found[1] is wanted[1] is None


def test_weights_come_from_torch_and_go_back():
    torch = pytest.importorskip("torch")
    for arguments in ({}, {"kdim": 7}, {"bias": False, "add_bias_kv": True}):
        theirs = torch.nn.MultiheadAttention(8, 2, **arguments)
        ours = mha.MultiheadAttention(8, 2, **arguments)
        assert list(ours.state_dict()) == list(theirs.state_dict())
        assert ours.load_state_dict(theirs.state_dict()) == ([], [])
        for name, tensor in ours.state_dict().items():
            assert torch.equal(tensor, theirs.state_dict()[name])
        other = torch.nn.MultiheadAttention(8, 2, **arguments)
        other.load_state_dict(ours.state_dict())
        assert torch.equal(other.out_proj.weight, theirs.out_proj.weight)
        ours.load_state_dict({name: tensor.numpy() for name, tensor in theirs.state_dict().items()})
        assert all(type(array) is np.ndarray for array in ours.state_dict().values())
        parameters = dict(theirs.named_parameters())  # which require grad
        ours.load_state_dict(parameters)
        assert not any(tensor.requires_grad for tensor in ours.state_dict().values())
    assert ours.load_state_dict(collections.OrderedDict(theirs.state_dict())) == ([], [])


def test_torch_seeds_dropout_and_grad_is_refused():
    torch = pytest.importorskip("torch")
    layer = mha.MultiheadAttention(8, 2, dropout=0.5)
    x = torch.randn(6, 2, 8)
    torch.manual_seed(3)
    first, second = layer(x, x, x)[0], layer(x, x, x)[0]
    torch.manual_seed(3)
    assert torch.equal(layer(x, x, x)[0], first) and not torch.equal(first, second)
    needs = x.clone().requires_grad_()
    for name, given in (("query", (needs, x, x)), ("key", (x, needs, x)), ("value", (x, x, needs))):
        with pytest.raises(ValueError, match=f"{name} requires grad"):
            layer(*given)
    with pytest.raises(ValueError, match="attn_mask requires grad"):
        layer(x, x, x, attn_mask=torch.zeros(6, 6, requires_grad=True))
    with torch.no_grad():
        assert layer(needs, needs, needs)[0].shape == (6, 2, 8)
    with pytest.raises(ValueError, match="query is on device meta"):
        layer(x.to("meta"), x, x)


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_torch_of_sixteen_bits(name):
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, name)
    torch.manual_seed(0)
    theirs = torch.nn.MultiheadAttention(16, 2, dtype=dtype, add_bias_kv=True).eval()
    ours = mha.MultiheadAttention(16, 2, dtype=dtype, add_bias_kv=True).eval()
    assert all(tensor.dtype == dtype for tensor in ours.state_dict().values())
    ours.load_state_dict(theirs.state_dict())
    exact = torch.nn.MultiheadAttention(16, 2, dtype=torch.float64, add_bias_kv=True).eval()
    exact.load_state_dict(theirs.state_dict())
    x, mask = torch.randn(5, 3, 16).to(dtype), torch.randn(5, 5).to(dtype)
    with torch.no_grad():
        wanted = exact(x.double(), x.double(), x.double(), attn_mask=mask.double())
        found = ours(x, x, x, attn_mask=mask)
        rounded = theirs(x, x, x, attn_mask=mask)
    for got, right, other in zip(found, wanted, rounded):
        assert got.dtype == dtype
        # One rounding of each element (half a step) and f32's; torch rounds at every step.
        assert goldens.error(got.double(), right) <= oracle.ROUNDOFF[name] + goldens.bound(16, np.float32)
        assert goldens.error(got.double(), right) < goldens.error(other.double(), right)
