"""MultiheadAttention without torch: torch's goldens, weights in and out, dropout, dtypes, strides, and bad input."""

import re
import subprocess
import sys

import goldens
import numpy as np
import oracle
import pytest
from layers import near, small

import mha


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


def test_sizes_beyond_any_memory(random):
    with pytest.raises(ValueError, match=re.escape("more than 2^63 elements")):
        mha.MultiheadAttention(2**40, 2)
    layer, x = small(random)
    endless = np.broadcast_to(x[:, :1], (2, 2**50, 12))
    for need_weights in (True, False):
        with pytest.raises(MemoryError):
            layer(x, endless, endless, need_weights=need_weights)
    assert layer(x, x, x)[0].shape == x.shape


def test_is_causal_is_a_hint_and_the_mask_decides(random):
    layer, x = small(random)
    mask = random.random((5, 5)) < 0.3
    for need_weights in (True, False):
        hinted = layer(x, x, x, attn_mask=mask, is_causal=True, need_weights=need_weights)[0]
        np.testing.assert_array_equal(hinted, layer(x, x, x, attn_mask=mask)[0])
