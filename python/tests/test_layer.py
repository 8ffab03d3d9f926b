"""The library's own layer and attention_weights: torch's goldens in f64 and f32, hooks, options, threads, and bad input."""

import gc
import re
import signal
import subprocess
import sys
import threading
import time

import goldens
import numpy as np
import oracle
import pytest

import mha
from mha import _arrays, _core

SMALL = {"d_model": 16, "heads": 4, "kv_heads": 2}


def inputs(random, batch=2, length=7, width=16, dtype=np.float32):
    return random.standard_normal((batch, length, width)).astype(dtype)


def weights_of(golden):
    """Our names for torch's."""
    width = golden["x"].shape[2]
    found = {"wo": golden["out_proj.weight"]}
    for place, role in enumerate("qkv"):
        rows = slice(place * width, (place + 1) * width)
        found[f"w{role}"] = golden["in_proj_weight"][rows] if "in_proj_weight" in golden else golden[f"{role}_proj_weight"]
        if "in_proj_bias" in golden:
            found[f"b{role}"] = golden["in_proj_bias"][rows]
    if "in_proj_bias" in golden:
        found["bo"] = golden["out_proj.bias"]
    if "bias_k" in golden:
        found |= {f"learned_{role}": golden[f"bias_{role}"].reshape(width) for role in "kv"}
    return found


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", goldens.LAYERS)
def test_computes_what_torch_computes(name, dtype):
    golden = goldens.layer(name, dtype)
    width = golden["x"].shape[2]
    key, value = golden.get("key"), golden.get("value")
    layer = mha.MultiHeadAttention(
        width,
        golden["heads"],
        key_width=None if key is None else key.shape[2],
        value_width=None if value is None else value.shape[2],
        bias="in_proj_bias" in golden,
        learned_key="bias_k" in golden,
        zero_key=golden["zero_key"],
        weights=weights_of(golden),
    )
    masks = {name: golden[name] for name in ("allowed", "bias", "kv_lengths") if name in golden}
    y, weights = layer(golden["x"], key, value, return_weights=True, **masks)
    assert y.dtype == dtype and weights.dtype == dtype
    limit = goldens.bound(max(width, 0 if key is None else key.shape[2]), dtype)
    assert goldens.error(y, golden["y"]) <= limit
    assert goldens.error(weights, golden["weights"]) <= limit
    np.testing.assert_array_equal(layer.forward(golden["x"], key, value, **masks), y)


def test_config_is_resolved():
    layer = mha.MultiHeadAttention(24, 6, kv_heads=3, key_width=10)
    assert layer.config == {"d_model": 24, "heads": 6, "kv_heads": 3, "head_dim": 4, "key_width": 10, "value_width": 10, "bias": True,
                            "learned_key": False, "zero_key": False}
    assert repr(layer).startswith("MultiHeadAttention(d_model=24, heads=6, kv_heads=3")


def test_same_seed_same_weights(random):
    x = inputs(random)
    first, again, other = (mha.MultiHeadAttention(**SMALL, seed=seed)(x) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


# ---- hooks


def test_a_hook_sees_the_heads_and_its_arrays_outlive_the_call(random):
    layer = mha.MultiHeadAttention(**SMALL)
    x = inputs(random)
    kept = {}

    def hook(trace):
        kept.update(q=trace.q, k=trace.k, v=trace.v, lse=trace.lse, head_out=trace.head_out, trace=trace)

    y, weights = layer(x, hook=hook, return_weights=True)
    before = {name: array.copy() for name, array in kept.items() if name != "trace"}
    del layer
    for _ in range(3):  # other calls use the same scratch memory
        mha.MultiHeadAttention(**SMALL, seed=5)(inputs(random, 4, 50))
    gc.collect()
    for name, array in before.items():
        np.testing.assert_array_equal(kept[name], array)
    assert kept["q"].shape == kept["head_out"].shape == (2, 7, 4, 4) and kept["k"].shape == kept["v"].shape == (2, 7, 2, 4)
    q, k, v = (np.swapaxes(kept[name], 1, 2) for name in "qkv")
    out, lse, exact = oracle.attend(q, oracle.repeat_heads(k, 4), oracle.repeat_heads(v, 4))
    oracle.check(np.swapaxes(kept["head_out"], 1, 2), out, v, "float32", 4)
    np.testing.assert_allclose(kept["lse"], lse, rtol=oracle.tolerance("float32", 4, 7), atol=oracle.tolerance("float32", 4, 7))
    np.testing.assert_allclose(weights, exact, rtol=oracle.tolerance("float32", 4, 7))
    assert np.isfinite(y).all()


def test_what_a_hook_did_not_look_at_is_gone(random):
    kept = []
    mha.MultiHeadAttention(**SMALL)(inputs(random), hook=kept.append)
    for name in ("q", "k", "v", "lse", "head_out"):
        with pytest.raises(RuntimeError, match="the hook has returned"):
            getattr(kept[0], name)
    with pytest.raises(RuntimeError, match="the hook has returned"):
        kept[0].weights(0)


def test_writing_zeros_ablates_heads(random):
    width, heads = 16, 4
    x = inputs(random, dtype=np.float64)
    names = {"wq": (16, 16), "wk": (16, 16), "wv": (16, 16), "wo": (16, 16), "bq": (16,), "bk": (16,), "bv": (16,), "bo": (16,)}
    weights = {name: random.standard_normal(shape) for name, shape in names.items()}
    layer = mha.MultiHeadAttention(width, heads, weights=weights)
    rest = []

    def ablate(trace):
        trace.head_out[:, :, 1:3] = 0
        rest.append(trace.head_out.copy())

    y = layer(x, hook=ablate)
    wanted = rest[0].reshape(2, 7, width) @ weights["wo"].T + weights["bo"]
    assert goldens.error(y, wanted) <= goldens.bound(width, np.float64)
    assert goldens.error(layer(x), wanted) > 0.01


def test_a_hook_that_raises(random):
    layer = mha.MultiHeadAttention(**SMALL)
    x = inputs(random)
    kept = []

    def hook(trace):
        kept.append(trace)
        raise KeyError("mine")

    for _ in range(3):
        with pytest.raises(KeyError, match="mine"):
            layer(x, hook=hook)
        with pytest.raises(RuntimeError, match="the hook has returned"):
            _ = kept[-1].q
    np.testing.assert_array_equal(layer(x), layer(x, hook=lambda trace: None))


def test_a_hook_may_compute(random):
    layer = mha.MultiHeadAttention(**SMALL)
    x = inputs(random)
    alone = layer(x)
    inner = []

    def hook(trace):
        inner.append(layer(x))
        q, k, v = (np.swapaxes(array, 1, 2) for array in (trace.q, trace.k, trace.v))
        inner.append(mha.scaled_dot_product_attention(q, k, v, enable_gqa=True))
        inner.append(trace.head_out.copy())

    np.testing.assert_array_equal(layer(x, hook=hook), alone)
    np.testing.assert_array_equal(inner[0], alone)
    np.testing.assert_array_equal(np.swapaxes(inner[1], 1, 2), inner[2])


def test_weights_recomputed_in_the_hook_and_after_it(random):
    layer = mha.MultiHeadAttention(**SMALL, mask=mha.window(3, 1), softcap=2.0, sink_logits=[0.0, 1.0, -1.0, 2.0])
    x = inputs(random, 2, 9)
    kept, parts = {}, {}
    bias = random.standard_normal((1, 4, 9, 9)).astype(np.float32)
    allowed = random.random((2, 1, 9, 9)) < 0.8

    def hook(trace):
        kept.update(q=trace.q, k=trace.k, lse=trace.lse)
        parts["all"] = trace.weights(3, batch=1)
        parts["some"] = trace.weights(3, 1, queries=(2, 6), keys=(1, 9))
        parts["none"] = trace.weights(0, queries=(4, 4))
        for refused in ((4, 0), (0, 2), (-1, 0)):
            with pytest.raises(ValueError, match="attention_weights: "):
                trace.weights(*refused)
        for refused in ((0, 10), (3, 2), (-1, 3), (0, 10**15)):
            with pytest.raises(ValueError, match=re.escape(f"queries [{refused[0]}, {refused[1]}) of 9")):
                trace.weights(0, queries=refused)

    table = layer(x, bias=bias, allowed=allowed, hook=hook, return_weights=True).weights
    limit = 2 * oracle.tolerance("float32", 4, 9)
    np.testing.assert_allclose(parts["all"], table[1, 3], rtol=limit)
    np.testing.assert_array_equal(parts["some"], parts["all"][2:6, 1:9])
    assert parts["none"].shape == (0, 9)
    options = {"mask": mha.window(3, 1), "softcap": 2.0, "sink_logits": [0.0, 1.0, -1.0, 2.0], "bias": bias, "allowed": allowed}
    after = mha.attention_weights(kept["q"], kept["k"], kept["lse"], 3, 1, **options)
    np.testing.assert_array_equal(after, parts["all"])
    np.testing.assert_array_equal(mha.attention_weights(kept["q"], kept["k"], kept["lse"], 3, 1, (2, 6), (1, 9), **options), parts["some"])


# ---- options


def test_masks_and_lengths(random):
    x = inputs(random, 2, 9)
    causal = mha.MultiHeadAttention(**SMALL, mask=mha.causal())
    plain = mha.MultiHeadAttention(**SMALL)
    np.testing.assert_array_equal(causal(x), plain(x, allowed=oracle.causal(9, 9)[None, None]))
    lengths = plain(x, kv_lengths=[9, 4])
    np.testing.assert_array_equal(lengths[1:], plain(x[1:], x[1:, :4]))
    np.testing.assert_array_equal(plain(x, kv_lengths=np.array([9, 4])), lengths)
    short = mha.MultiHeadAttention(**SMALL, mask=mha.causal() & mha.window(2), align="bottom_right")
    key = inputs(random, 2, 12)
    seen = oracle.causal(9, 12, 3) & ~oracle.causal(9, 12, 0)
    np.testing.assert_array_equal(short(x, key), plain(x, key, allowed=seen[None, None]))


def test_temperature_and_scale(random):
    x = inputs(random)
    np.testing.assert_array_equal(mha.MultiHeadAttention(**SMALL)(x, temperature=4.0), mha.MultiHeadAttention(**SMALL, scale=0.125)(x))
    with pytest.raises(ValueError, match="temperature is 0, must be finite and above 0"):
        mha.MultiHeadAttention(**SMALL)(x, temperature=0)


def test_dropout_acts_in_training_only_and_its_seed_decides(random):
    layer = mha.MultiHeadAttention(**SMALL, dropout=0.5)
    x = inputs(random)
    still = layer(x)
    np.testing.assert_array_equal(still, mha.MultiHeadAttention(**SMALL)(x))
    dropped = layer(x, training=True, seed=3)
    assert not np.array_equal(dropped, still)
    np.testing.assert_array_equal(layer(x, training=True, seed=3), dropped)
    assert not np.array_equal(layer(x, training=True, seed=4), dropped)
    np.random.seed(7)
    drawn = [layer(x, training=True) for _ in range(2)]
    np.random.seed(7)
    np.testing.assert_array_equal(layer(x, training=True), drawn[0])
    assert not np.array_equal(*drawn)


def test_a_learned_key_is_one_more_column(random):
    layer = mha.MultiHeadAttention(**SMALL, learned_key=True, zero_key=True)
    y, weights = layer(inputs(random), return_weights=True)
    assert weights.shape == (2, 4, 7, 9)
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=oracle.tolerance("float32", 4, 9))
    with pytest.raises(ValueError, match="kv_lengths has 2 entries, but 2 keys are appended"):
        layer(inputs(random), kv_lengths=[7, 3])
    assert y.shape == (2, 7, 16)


def test_strides_change_nothing(random):
    layer = mha.MultiHeadAttention(**SMALL)
    x = inputs(random)
    wanted = layer(x)
    wide = np.full((2, 7, 32), np.nan, np.float32)
    wide[:, :, ::2] = x
    length_first = np.ascontiguousarray(x.swapaxes(0, 1)).swapaxes(0, 1)
    backward = np.ascontiguousarray(x[:, ::-1])[:, ::-1]
    for array in (wide[:, :, ::2], length_first, backward, np.asfortranarray(x)):
        assert not array.flags.c_contiguous
        np.testing.assert_array_equal(layer(array), wanted)
    np.testing.assert_array_equal(layer(np.broadcast_to(x[:1], (3, 7, 16))), np.broadcast_to(wanted[:1], (3, 7, 16)))


def test_torch_in_torch_out(random):
    torch = pytest.importorskip("torch")
    layer = mha.MultiHeadAttention(**SMALL)
    x = inputs(random)
    y, weights = layer(torch.from_numpy(x), return_weights=True)
    assert isinstance(y, torch.Tensor) and isinstance(weights, torch.Tensor)
    np.testing.assert_array_equal(y.numpy(), layer(x))
    with pytest.raises(ValueError, match="x requires grad"):
        layer(torch.from_numpy(x).requires_grad_())
    with torch.no_grad():
        np.testing.assert_array_equal(layer(torch.from_numpy(x).requires_grad_()).numpy(), layer(x))
    wq = torch.nn.Parameter(torch.zeros(16, 16))
    with pytest.raises(ValueError, match="wq requires grad"):
        mha.MultiHeadAttention(16, 4, weights={"wq": wq})


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bit_weights_are_storage(random, dtype):
    kind = np.float16 if dtype == "float16" else pytest.importorskip("ml_dtypes").bfloat16
    names = {"wq": (16, 16), "wk": (16, 16), "wv": (16, 16), "wo": (16, 16)}
    stored = {name: random.standard_normal(shape).astype(kind) for name, shape in names.items()}
    x = inputs(random)
    small = mha.MultiHeadAttention(16, 4, bias=False, weights=stored)(x)
    np.testing.assert_array_equal(small, mha.MultiHeadAttention(16, 4, bias=False, weights={n: w.astype(np.float32) for n, w in stored.items()})(x))


# ---- threads and memory


def test_many_threads_at_once(random):
    layer = mha.MultiHeadAttention(64, 4)
    xs = [random.standard_normal((2, 33, 64)).astype(np.float32) for _ in range(8)]
    wanted = [layer(x) for x in xs]
    wrong = []

    def work(i):
        for _ in range(5):
            seen = []
            if not np.array_equal(layer(xs[i].copy(), hook=lambda trace: seen.append(trace.q)), wanted[i]) or len(seen) != 1:
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_other_threads_run_while_it_computes(random):
    layer = mha.MultiHeadAttention(256, 4)
    call, computing, counted = _call(random.standard_normal((1, 1024, 256)).astype(np.float32)), threading.Event(), []

    def count():
        computing.wait()
        counted.extend(range(1000))

    other = threading.Thread(target=count)
    other.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # no thread is made to give up the GIL: the other one runs only where this one lets it
    try:
        computing.set()
        layer._layer.forward(call)
        steps = len(counted)
    finally:
        sys.setswitchinterval(interval)
    other.join()
    assert steps == 1000


@pytest.mark.parametrize("hook", ["None", "seen.append"])
def test_ctrl_c(hook):
    """SIGINT within a call that would take minutes: KeyboardInterrupt at once, no hook is called, and the next call is right."""
    program = f"""
import numpy as np, mha
layer = mha.MultiHeadAttention(64, 8)
x = np.broadcast_to(np.ones((1, 1, 64), np.float32), (1, 60000, 64))
small = np.random.default_rng(0).standard_normal((2, 9, 64)).astype(np.float32)
wanted, seen = layer(small), []
print("ready", flush=True)
try:
    layer(x, hook={hook})
    print("finished")
except KeyboardInterrupt:
    print("interrupted", len(seen), np.array_equal(layer(small), wanted))
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.4)
        process.send_signal(signal.SIGINT)
        try:
            assert process.communicate(timeout=30)[0] == "interrupted 0 True\n"
        finally:
            process.kill()


def _call(x, y=None):
    return _core.LayerCall(_arrays.read(x, "x"), _arrays.read(np.empty_like(x) if y is None else y, "y", writable=True))


def test_arrays_are_held_while_used(random):
    layer = mha.MultiHeadAttention(64, 4)
    x = random.standard_normal((4, 65, 64)).astype(np.float32)
    wanted = layer(x)
    y = np.empty_like(x)
    call = _call(x.copy(), y)
    gc.collect()
    filler = [np.full_like(x, np.nan) for _ in range(8)]
    layer._layer.forward(call)
    np.testing.assert_array_equal(y, wanted)
    assert len(filler) == 8


# ---- bad input


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"d_model": 16, "heads": 3}, ValueError, "layer: d_model 16 is not a multiple of heads 3"),
        ({"d_model": 16, "heads": 0}, ValueError, "layer: heads is 0, must be at least 1"),
        ({"d_model": 16, "heads": 4, "kv_heads": 3}, ValueError, "layer: heads 4 is not a multiple of kv_heads 3"),
        ({"d_model": 16, "heads": 4, "head_dim": -1}, ValueError, "layer: head_dim is -1, must be at least 0"),
        ({"d_model": 16.0, "heads": 4}, TypeError, "d_model is 16.0, must be an integer"),
        ({"d_model": 16, "heads": 4, "dropout": 1.5}, ValueError, "layer: dropout probability is 1.5, must be in [0, 1]"),
        ({"d_model": 16, "heads": 4, "align": "left"}, ValueError, 'is "left", must be "top_left" or "bottom_right"'),
        ({"d_model": 16, "heads": 4, "seed": -1}, ValueError, "seed is -1, must be 0 to 2^64 - 1"),
        ({"d_model": 16, "heads": 4, "weights": {"wq": np.zeros((4, 16), np.float32)}}, ValueError, "layer: wq has shape [4, 16], the config wants [16, 16]"),
        ({"d_model": 16, "heads": 4, "weights": {"W": np.zeros((4, 16), np.float32)}}, ValueError, "layer: weights have the names W, of which all must be of wq, wk"),
        ({"d_model": 16, "heads": 4, "weights": {"wq": [[1.0]]}}, TypeError, "wq is a list, must be an array"),
        ({"d_model": 16, "heads": 4, "weights": {"wq": np.zeros((16, 16), np.int32)}}, TypeError, "wq is int32, must be f32"),
        ({"d_model": 2**40, "heads": 2**20, "head_dim": 2**50}, ValueError, "2^63"),
    ],
)
def test_layers_that_cannot_be(arguments, error, text):
    with pytest.raises(error, match=re.escape(text)):
        mha.MultiHeadAttention(**arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"x": np.zeros((2, 7, 15), np.float32)}, ValueError, "layer: x has width 15, the config wants 16"),
        ({"x": np.zeros((7, 16), np.float32)}, ValueError, "layer: x has shape [7, 16], [batch, length, width] is wanted"),
        ({"x": np.zeros((1, 1, 2, 7, 16), np.float32)}, ValueError, "x has shape [1, 1, 2, 7, 16], at most 4 axes"),
        ({"x": np.zeros((2, 7, 16))}, TypeError, "layer: x is f64, the layer computes in f32"),
        ({"x": np.zeros((2, 7, 16), np.float16)}, TypeError, "layer: x is f16, the layer computes in f32"),
        ({"x": "x"}, TypeError, "x is a str, must be an array"),
        ({"key": np.zeros((3, 7, 16), np.float32)}, ValueError, "layer: key has batch 3, x has batch 2"),
        ({"value": np.zeros((2, 6, 16), np.float32)}, ValueError, "layer: value has length 6, key has length 7"),
        ({"allowed": np.ones((1, 1, 7, 6), bool)}, ValueError, "attention: allowed has shape [1, 1, 7, 6], which does not broadcast to [2, 4, 7, 7]"),
        ({"allowed": np.ones((1, 1, 7, 7), np.float32)}, TypeError, "attention: allowed is f32, must be bool"),
        ({"bias": np.ones((7, 7), np.float32)}, ValueError, "attention: bias has shape [7, 7], must have 4 axes"),
        ({"bias": np.ones((1, 1, 7, 7))}, TypeError, "attention: bias is f64"),
        ({"kv_lengths": [7, 8]}, ValueError, "attention: kv_lengths[1] is 8, k has length 7"),
        ({"kv_lengths": [7]}, ValueError, "attention: kv_lengths has 1 entries, batch is 2"),
        ({"kv_lengths": [7.5, 1]}, TypeError, "kv_lengths must hold one integer per batch entry"),
        ({"temperature": float("nan")}, ValueError, "layer: temperature is nan, must be finite and above 0"),
        ({"num_threads": 0}, ValueError, "num_threads is 0"),
        ({"x": np.zeros((2, 7, 15), np.float32), "return_weights": True}, ValueError, "layer: x has width 15"),
        ({"x": np.zeros((7, 16), np.float32), "return_weights": True}, ValueError, "[batch, length, width] is wanted"),
    ],
)
def test_calls_that_cannot_be(arguments, error, text):
    layer = mha.MultiHeadAttention(**SMALL)
    arguments = {"x": np.zeros((2, 7, 16), np.float32)} | arguments
    with pytest.raises(error, match=re.escape(text)):
        layer(**arguments)


def test_sizes_beyond_any_memory(random):
    x = inputs(random)
    layer = mha.MultiHeadAttention(**SMALL, zero_key=True)
    endless = np.broadcast_to(x[:1, :1], (2, 2**50, 16))
    with pytest.raises(MemoryError):
        layer(x, endless)
    with pytest.raises(MemoryError):
        layer(endless)
    np.testing.assert_array_equal(layer(x), layer(x, x))
    torch = pytest.importorskip("torch")
    beyond = torch.zeros(16).as_strided((2, 2**57, 16), (0, 0, 1))  # NumPy has none so long
    with pytest.raises(ValueError, match=re.escape("has more than 2^63 elements")):
        layer(x, beyond)


def test_attention_weights_refuses(random):
    q, k = random.standard_normal((2, 5, 4, 3)).astype(np.float32), random.standard_normal((2, 6, 2, 3)).astype(np.float32)
    lse = np.zeros((2, 4, 5), np.float32)
    good = {"q": q, "k": k, "lse": lse, "head": 0}
    assert mha.attention_weights(**good).shape == (5, 6)
    for changes, error, text in (
        ({"head": 4}, ValueError, "attention_weights: head 4 of 4"),
        ({"batch": 2}, ValueError, "attention_weights: batch entry 2 of 2"),
        ({"queries": (0, 6)}, ValueError, "queries is (0, 6), must lie in 0 to 5"),
        ({"keys": (0, 10**15)}, ValueError, f"keys is (0, {10**15}), must lie in 0 to 6"),
        ({"keys": (1, 2, 3)}, ValueError, "keys has 3 numbers, must be (begin, end)"),
        ({"lse": lse[:, :3]}, ValueError, "attention_weights: lse has shape [2, 3, 5], must be [2, 4, 5]"),
        ({"lse": lse.astype(np.float64)}, TypeError, "attention_weights: lse is f64, must be f32"),
        ({"q": q[0]}, ValueError, "q has shape [5, 4, 3]"),
        ({"q": q.astype(np.float64), "k": k.astype(np.float64)}, TypeError, "q is f64"),
        ({"mask": mha.causal()}, ValueError, "needs align"),
        ({"bias": np.zeros((1, 1, 5, 6), np.float32), "alibi_slopes": [1.0] * 4, "align": "top_left"}, ValueError, "bias and alibi_slopes"),
    ):
        with pytest.raises(error, match=re.escape(text)):
            mha.attention_weights(**(good | changes))


def test_ctrl_c_within_a_hook(random):
    """It is raised by the call that it stopped, and nothing of it is left for the next one."""
    layer = mha.MultiHeadAttention(d_model=16, heads=1)
    x = random.standard_normal((1, 7000, 16)).astype(np.float32)

    def hook(trace):
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        trace.weights(0)

    def raise_it(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, raise_it)
    try:
        with pytest.raises(KeyboardInterrupt):
            layer(x, hook=hook)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    layer(x[:, :10])
