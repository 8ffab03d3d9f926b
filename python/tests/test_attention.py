"""scaled_dot_product_attention on NumPy arrays: every option against the float64 oracle, torch's rules of shapes, and what is refused."""

import numpy as np
import oracle
import pytest

import mha

sdpa = mha.scaled_dot_product_attention


def problem(random, lead=(2, 3), q_len=7, kv_len=9, head_dim=8, value_dim=5, dtype=np.float32):
    shapes = (*lead, q_len, head_dim), (*lead, kv_len, head_dim), (*lead, kv_len, value_dim)
    return [random.standard_normal(shape).astype(dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (2, 2, 3), (2, 1, 2, 3)])
def test_every_rank_and_dtype(random, lead, dtype):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    q, k, v = problem(random, lead, dtype=dtype)
    out, lse, weights, stats = sdpa(q, k, v, return_lse=True, return_weights=True)
    exact = oracle.attend(q, k, v)
    assert isinstance(out, np.ndarray) and out.dtype == q.dtype and stats is None
    oracle.check(out, exact[0], v, out.dtype, 8)
    assert lse.dtype == weights.dtype == (np.float64 if out.dtype == np.float64 else np.float32)
    wide = oracle.tolerance(lse.dtype, 8, 9)
    assert lse.shape == exact[1].shape and np.abs(lse - exact[1]).max() <= wide * 4
    assert weights.shape == exact[2].shape and np.abs(weights - exact[2]).max() <= wide
    assert np.array_equal(out, sdpa(q, k, v)), "what else is asked for changes no bit"


@pytest.mark.parametrize("mask_shape", [(7, 9), (9,), (7, 1), (), (3, 7, 9), (3, 1, 9), (2, 1, 7, 9), (2, 3, 7, 9), (2, 1, 1, 9)])
@pytest.mark.parametrize("kind", ["bool", "float32", "float16"])
def test_masks_of_any_broadcastable_shape(random, mask_shape, kind):
    q, k, v = problem(random)
    if kind == "bool":
        mask = random.random(mask_shape) < 0.7
        exact = oracle.attend(q, k, v, seen=mask)[0]
    else:
        mask = np.where(random.random(mask_shape) < 0.8, random.standard_normal(mask_shape), -np.inf).astype(kind)
        exact = oracle.attend(q, k, v, seen=np.isfinite(mask), bias=np.where(np.isfinite(mask), mask, 0))[0]
    oracle.check(sdpa(q, k, v, np.asarray(mask)), exact, v, "float32", 8)


WINDOWS = {(2, 1): (2, 1), (0, -1): (0, 10**6), (-1, 0): (10**6, 0), (-1, -1): (10**6, 10**6)}


@pytest.mark.parametrize("causal_align", ["top_left", "bottom_right"])
@pytest.mark.parametrize("q_len, kv_len", [(7, 9), (9, 7), (1, 5)])
@pytest.mark.parametrize("rule", ["causal", *WINDOWS])
def test_rules_of_position_and_their_alignment(random, rule, q_len, kv_len, causal_align):
    q, k, v = problem(random, q_len=q_len, kv_len=kv_len)
    positions = np.arange(q_len)[:, None] + (kv_len - q_len if causal_align == "bottom_right" else 0)
    if rule == "causal":
        seen, options = np.arange(kv_len) <= positions, {"is_causal": True}
    else:
        left, right = WINDOWS[rule]
        seen, options = (np.arange(kv_len) >= positions - left) & (np.arange(kv_len) <= positions + right), {"window": rule}
    out = sdpa(q, k, v, causal_align=causal_align, **options)
    oracle.check(out, oracle.attend(q, k, v, seen=seen)[0], v, "float32", 8)


def test_everything_at_once_masks_intersect(random):
    q, k, v = problem(random, lead=(2, 4), q_len=9, kv_len=9)
    mask = random.random((2, 1, 9, 9)) < 0.8
    slopes, sinks = mha.alibi_slopes(4), random.standard_normal(4)
    distance = np.abs(np.arange(9) - np.arange(9)[:, None])
    exact = oracle.attend(q, k, v, seen=mask & oracle.causal(9, 9) & (distance <= 3), bias=-np.reshape(slopes, (4, 1, 1)) * distance,
                          scale=0.3, softcap=1.5, sinks=sinks)
    found = sdpa(q, k, v, mask, is_causal=True, scale=0.3, window=(3, 3), softcap=1.5, sinks=sinks, alibi_slopes=slopes, return_lse=True,
                 return_weights=True)
    oracle.check(found.out, exact[0], v, "float32", 8)
    assert np.abs(found.lse - exact[1]).max() <= oracle.tolerance("float32", 8, 9) * 4
    assert np.abs(found.weights - exact[2]).max() <= oracle.tolerance("float32", 8, 9)


@pytest.mark.parametrize("kv_heads", [1, 2, 3, 6])
def test_grouped_heads(random, kv_heads):
    q = problem(random, lead=(2, 6))[0]
    _, k, v = problem(random, lead=(2, kv_heads))
    exact = oracle.attend(q, oracle.repeat_heads(k, 6), oracle.repeat_heads(v, 6))[0]
    oracle.check(sdpa(q, k, v, enable_gqa=True), exact, v, "float32", 8)


@pytest.mark.parametrize("leads", [((2, 3), (1, 3), (3,)), ((2, 3), (1,), ()), ((1,), (2, 3), (2, 1)), ((), (2, 3), (1, 1)),
                                   ((4, 1, 3), (2, 1), (4, 2, 3)), ((2, 3), (2, 1), (2, 1)), ((2, 1), (2, 3), (2, 3))])
def test_leading_axes_broadcast_as_torch_has_it(random, leads):
    q, k, v = (problem(random, lead=lead)[i] for i, lead in enumerate(leads))
    oracle.check(sdpa(q, k, v), oracle.attend(q, k, v)[0], v, "float32", 8)


STRIDES = {
    "lengths_reversed": lambda array: array[..., ::-1, :],
    "elements_reversed": lambda array: array[..., ::-1],
    "heads_and_batch_reversed": lambda array: array[::-1, ::-1],
    "heads_after_lengths": lambda array: np.ascontiguousarray(array.swapaxes(-2, -3)).swapaxes(-2, -3),
    "fortran": np.asfortranarray,
    "every_other_element": lambda array: np.repeat(array, 2, -1)[..., ::2],
    "every_other_row": lambda array: np.repeat(array, 3, -2)[..., ::3, :],
    "one_batch_entry_repeated": lambda array: np.broadcast_to(array[:1], array.shape),
    "one_row_repeated": lambda array: np.broadcast_to(array[..., :1, :], array.shape),
}


@pytest.mark.parametrize("name", STRIDES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_any_strides_give_the_bits_of_dense_arrays(random, name, dtype):
    strided = [STRIDES[name](array) for array in problem(random, q_len=33, kv_len=40, dtype=dtype)]
    dense = [np.ascontiguousarray(array) for array in strided]
    mask = STRIDES[name](random.random((2, 3, 33, 40)) < 0.7)
    assert name == "fortran" or any(array.strides != other.strides for array, other in zip(strided, dense))
    assert np.array_equal(sdpa(*strided, mask), sdpa(*dense, np.ascontiguousarray(mask)))


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0), (0, 2, 1)])
def test_leading_axes_in_any_order_of_memory(random, order):
    """Whether they are joined to one batch or computed one after the other changes no bit; with dropout neither."""
    axes = (*order, 3, 4)
    dense = problem(random, lead=(4, 2, 3), q_len=20, kv_len=30)
    strided = [np.ascontiguousarray(array.transpose(axes)).transpose(np.argsort(axes)) for array in dense]
    mask = random.random((4, 1, 1, 1, 30)) < 0.8
    for options in ({}, {"dropout_p": 0.3, "seed": 4}):
        out, lse, weights, _ = sdpa(*strided, mask, return_lse=True, return_weights=True, **options)
        expected = sdpa(*dense, mask, return_lse=True, return_weights=True, **options)
        assert np.array_equal(out, expected.out) and np.array_equal(lse, expected.lse) and np.array_equal(weights, expected.weights)
        for i, j in np.ndindex(4, 2):
            if not options:
                assert np.array_equal(out[i, j], sdpa(*(array[i, j] for array in dense), mask[i, 0]))


def test_memory_of_the_output_goes_as_that_of_the_query(random):
    q, k, v = problem(random)
    assert sdpa(q, k, v).flags.c_contiguous
    length_first = STRIDES["heads_after_lengths"](q)
    assert sdpa(length_first, k, v).swapaxes(-2, -3).flags.c_contiguous


def test_broadcasting_copies_nothing(random):
    """A terabyte of keys, where one kilobyte has memory."""
    q = random.standard_normal((1, 2, 1, 8)).astype(np.float32)
    k = np.broadcast_to(random.standard_normal((1, 1, 1, 8)).astype(np.float32), (1, 2, 5, 8))
    mask = np.broadcast_to(True, (2**20, 2, 1, 5))[:1]
    oracle.check(sdpa(q, k, k, mask), oracle.attend(q, k, k)[0], k, "float32", 8)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_row_that_sees_nothing_is_zero(random, dtype):
    q, k, v = problem(random, dtype=dtype)
    v[..., 0, :] = np.nan
    mask = np.ones((7, 9), bool)
    mask[2] = False
    mask[:, 0] = False
    out, lse, weights, _ = sdpa(q, k, v, mask, return_lse=True, return_weights=True)
    assert (out[..., 2, :] == 0).all() and (weights[..., 2, :] == 0).all() and (lse[..., 2] == -np.inf).all()
    assert np.isfinite(out).all(), "a hidden key changes nothing, whatever it holds"
    assert (sdpa(q, k, v, np.where(mask, 0, -np.inf).astype(dtype)) == out).all()


@pytest.mark.parametrize("sizes", [dict(lead=(0, 3)), dict(lead=(2, 0)), dict(lead=(0, 2, 3)), dict(q_len=0), dict(kv_len=0),
                                   dict(head_dim=0), dict(value_dim=0), dict(lead=(), q_len=0)])
def test_sizes_of_zero_give_zeros_of_the_right_shape(random, sizes):
    q, k, v = problem(random, **sizes)
    out, lse, weights, _ = sdpa(q, k, v, np.ones((q.shape[-2], k.shape[-2]), bool), return_lse=True, return_weights=True)
    assert out.shape == (*q.shape[:-1], v.shape[-1]) and (out == 0).all()
    assert lse.shape == q.shape[:-1] and weights.shape == (*q.shape[:-1], k.shape[-2])


def test_an_explicit_scale_is_a_double(random):
    q, k, v = problem(random, head_dim=7, dtype=np.float64)
    assert np.array_equal(sdpa(q, k, v, scale=1 / np.sqrt(7.0)), sdpa(q, k, v))
    exact = oracle.attend(q, k, v, softcap=0.7)[0]
    oracle.check(sdpa(q, k, v, softcap=0.7), exact, v, "float64", 7)


class TestDropout:
    @staticmethod
    def dropped(random, lead=(2, 3), **options):
        """(weights before dropout, weights after it): values that are the identity show them."""
        q, k, _ = problem(random, lead, q_len=20, kv_len=30)
        v = np.broadcast_to(np.eye(30, dtype=np.float32), (*lead, 30, 30))
        result = sdpa(q, k, v, dropout_p=0.4, return_weights=True, **options)
        return result.weights, result.out

    @pytest.mark.parametrize("lead", [(3,), (2, 3), (2, 2, 3), (4, 1, 3)])
    def test_each_weight_is_dropped_or_grown(self, random, lead):
        weights, out = self.dropped(random, lead, seed=5)
        kept = out != 0
        assert np.allclose(out[kept], weights[kept] / 0.6, rtol=1e-5, atol=0)
        count = kept.size
        assert abs(kept.sum() - 0.6 * count) < 6 * np.sqrt(0.24 * count), "six standard deviations"
        entries = kept.reshape(-1, 20, 30)
        assert len({entry.tobytes() for entry in entries}) == len(entries), "every batch entry and head has a pattern of its own"

    def test_seeds(self, random):
        q, k, v = problem(random)
        draw = lambda **options: sdpa(q, k, v, dropout_p=0.5, **options)
        assert np.array_equal(draw(seed=1), draw(seed=1)) and not np.array_equal(draw(seed=1), draw(seed=2))
        assert np.array_equal(draw(seed=2**64 - 1), draw(seed=2**64 - 1))
        np.random.seed(3)
        first, second = draw(), draw()
        np.random.seed(3)
        assert np.array_equal(first, draw()) and not np.array_equal(first, second)

    def test_all_dropped(self, random):
        q, k, v = problem(random)
        assert (sdpa(q, k, v, dropout_p=1.0) == 0).all()


class TestOut:
    def test_is_written_and_returned(self, random):
        q, k, v = problem(random)
        for memory in (np.full((2, 3, 7, 5), np.nan, np.float32), np.full((2, 7, 3, 10), np.nan, np.float32).swapaxes(1, 2)[..., ::-2]):
            assert sdpa(q, k, v, out=memory) is memory
            assert np.array_equal(memory, sdpa(q, k, v))
        assert sdpa(q, k, v, out=memory, return_lse=True).out is memory

    def test_of_rank_two_and_five(self, random):
        for lead in ((), (2, 2, 3)):
            q, k, v = problem(random, lead)
            memory = np.full((*lead, 7, 5), np.nan, np.float32)
            assert np.array_equal(sdpa(q, k, v, out=memory), sdpa(q, k, v))

    @pytest.mark.parametrize("make, error, text", [
        (lambda q: np.empty((2, 3, 7, 6), np.float32), ValueError, r"out has shape \[2, 3, 7, 6\], must be \[2, 3, 7, 5\]"),
        (lambda q: np.empty((3, 7, 5), np.float32), ValueError, r"out has shape \[3, 7, 5\], must be \[2, 3, 7, 5\]"),
        (lambda q: np.empty((2, 3, 7, 5), np.float64), TypeError, "out is f64, must be f32"),
        (lambda q: np.broadcast_to(np.float32(0), (2, 3, 7, 5)), ValueError, "out is read-only"),
        (lambda q: np.lib.stride_tricks.as_strided(np.zeros(105, np.float32), (2, 3, 7, 5), (0, 140, 20, 4)), ValueError, "stride 0"),
        (lambda q: q[..., :5], ValueError, "out overlaps q"),
        (lambda q: [0.0], TypeError, "out is a list"),
    ])
    def test_refusals(self, random, make, error, text):
        q, k, v = problem(random)
        before = q.copy()
        with pytest.raises(error, match=text):
            sdpa(q, k, v, out=make(q))
        assert np.array_equal(q, before)

    def test_overlap_between_outer_entries(self, random):
        """The library is called once per leading entry; entry 1's output must not lie on entry 0's query either."""
        q, k, v = problem(random, (2, 2, 3), value_dim=8)
        with pytest.raises(ValueError, match="out overlaps query"):
            sdpa(q, k, v, out=q[::-1])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_threads_change_no_bit(random, dtype):
    q, k, v = problem(random, (2, 4), q_len=300, kv_len=300, head_dim=32, value_dim=32, dtype=dtype)
    one = sdpa(q, k, v, num_threads=1)
    for threads in (None, mha.max_threads()):
        assert np.array_equal(one, sdpa(q, k, v, num_threads=threads))



# What is wrong -> error and text. The arguments are those of a good call, changed.
REFUSED = {
    "rank_1": (dict(query=lambda q: q[0, 0, 0]), ValueError, r"query has shape \[8\]"),
    "rank_0_mask_of_ints": (dict(attn_mask=lambda q: np.int64(1)), TypeError, "attn_mask"),
    "head_dims": (dict(query=lambda q: q[..., :7]), ValueError, "k has head_dim 8, q has 7"),
    "batches": (dict(query=lambda q: np.concatenate([q, q[:1]])), ValueError, r"batch axes do not broadcast: \[3\] and \[2\]"),
    "heads": (dict(query=lambda q: q[:, :2]), ValueError, "heads of query, key and value .*enable_gqa"),
    "groups": (dict(key=lambda q: np.zeros((2, 2, 9, 8), np.float32), value=lambda q: np.zeros((2, 2, 9, 5), np.float32), enable_gqa=True),
               ValueError, "k has 2 heads, q has 3"),
    "lengths": (dict(value=lambda q: q[..., :6, :5]), ValueError, "v has length 6, k has 9"),
    "ints": (dict(query=lambda q: q.astype(np.int32)), TypeError, "query is int32"),
    "i64": (dict(query=lambda q: q.astype(np.int64)), TypeError, "i64"),
    "complex": (dict(query=lambda q: q.astype(np.complex64)), TypeError, "query is complex64"),
    "long_double": (dict(query=lambda q: q.astype(np.longdouble)), TypeError, "query"),
    "dtypes": (dict(key=lambda q: np.zeros((2, 3, 9, 8))), TypeError, "k is f64, q is f32"),
    "objects": (dict(query=lambda q: q.astype(object)), TypeError, "query is a ndarray that cannot be read"),
    "big_endian": (dict(query=lambda q: q.astype(">f4")), TypeError, "query is a ndarray that cannot be read"),
    "list": (dict(query=lambda q: q.tolist()), TypeError, "query is a list, must be an array"),
    "none": (dict(key=lambda q: None), TypeError, "key is a NoneType"),
    "masked_array": (dict(query=lambda q: np.ma.masked_array(q)), TypeError, "query is a masked array"),
    "mask_of_ints": (dict(attn_mask=lambda q: np.ones((7, 9), np.uint8)), TypeError, "attn_mask is uint8"),
    "mask_of_doubles": (dict(attn_mask=lambda q: np.ones((7, 9))), TypeError, "bias is f64"),
    "mask_rank": (dict(attn_mask=lambda q: np.ones((1, 2, 3, 7, 9), bool)), ValueError, "attn_mask has shape .*does not broadcast"),
    "mask_shape": (dict(attn_mask=lambda q: np.ones((7, 8), bool)), ValueError, "allowed has shape .*does not broadcast"),
    "mask_batch": (dict(attn_mask=lambda q: np.ones((3, 1, 7, 9), bool)), ValueError, "attn_mask has shape .*does not broadcast"),
    "alibi_and_floats": (dict(attn_mask=lambda q: np.ones((7, 9), np.float32), alibi_slopes=[1, 2, 3]), ValueError, "alibi_slopes"),
    "dropout": (dict(dropout_p=1.5), ValueError, "dropout's probability is 1.5"),
    "dropout_nan": (dict(dropout_p=float("nan")), ValueError, "dropout's probability is nan"),
    "dropout_text": (dict(dropout_p="x"), TypeError, "dropout_p is 'x', must be a number"),
    "scale": (dict(scale=float("inf")), ValueError, "scale is inf"),
    "scale_huge": (dict(scale=10**400), ValueError, "scale is 1000.*beyond f64"),
    "scale_large": (dict(scale=1e300), ValueError, r"scale is 1e\+300, must be finite as f32"),
    "scale_text": (dict(scale=[1]), TypeError, r"scale is \[1\], must be a number"),
    "softcap": (dict(softcap=0.0), ValueError, "softcap is 0"),
    "window_three": (dict(window=(1, 2, 3)), ValueError, r"window is \(1, 2, 3\), must be \(left, right\)"),
    "window_number": (dict(window=3), TypeError, r"window is 3, must be \(left, right\)"),
    "window_floats": (dict(window=(1.5, 2)), TypeError, "window is 1.5, must be an integer"),
    "window_negative": (dict(window=(-2, 0)), ValueError, "window"),
    "sinks": (dict(sinks=[1.0, 2.0]), ValueError, "sink_logits has 2 entries, q has 3 heads"),
    "sinks_number": (dict(sinks=1.0), TypeError, "sinks must hold one number per head"),
    "sinks_rank": (dict(sinks=np.ones((3, 1))), TypeError, "sinks must hold one number per head"),
    "slopes": (dict(alibi_slopes=[1.0]), ValueError, "ALiBi has 1 slopes, q has 3 heads"),
    "align": (dict(causal_align="topleft"), ValueError, 'causal_align is .topleft., must be "top_left" or "bottom_right"'),
    "align_unset": (dict(causal_align="unset"), ValueError, 'causal_align is .unset.'),
    "align_number": (dict(causal_align=1), ValueError, "causal_align is 1"),
    "seed": (dict(seed=-1, dropout_p=0.5), ValueError, "seed is -1, must be 0 to"),
    "seed_large": (dict(seed=2**64, dropout_p=0.5), ValueError, "seed is 18446744073709551616, which is beyond 64 bits"),
    "seed_float": (dict(seed=1.5, dropout_p=0.5), TypeError, "seed is 1.5, must be an integer"),
    "no_threads": (dict(num_threads=0), ValueError, "num_threads is 0, must be at least 1"),
    "huge_threads": (dict(num_threads=2**70), ValueError, "num_threads is 1180591620717411303424, which is beyond 64 bits"),
    "threads_text": (dict(num_threads="2"), TypeError, "num_threads is '2', must be an integer"),
}


def test_more_threads_than_cores_are_all_cores(random):
    q, k, v = problem(random)
    np.testing.assert_array_equal(mha.scaled_dot_product_attention(q, k, v, num_threads=10**6), mha.scaled_dot_product_attention(q, k, v))


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_argument_and_the_numbers(random, name):
    changes, error, text = REFUSED[name]
    arguments = dict(zip(("query", "key", "value"), problem(random)), out=np.full((2, 3, 7, 5), 7, np.float32))
    for argument, change in changes.items():
        arguments[argument] = change(arguments["query"]) if callable(change) else change
    with pytest.raises(error, match=text):
        sdpa(**arguments)
    assert (arguments["out"] == 7).all(), "before any output is touched"


def test_the_slopes_of_the_paper():
    assert mha.alibi_slopes(4) == [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8]
    with pytest.raises(ValueError, match="heads"):
        mha.alibi_slopes(0)


class TestAttentionForward:
    """The library's own call: its names, its axis order."""

    @staticmethod
    def arrays(random, **sizes):
        return [np.ascontiguousarray(array.swapaxes(1, 2)) for array in problem(random, (2, 4), **sizes)]

    def test_is_the_same_computation(self, random):
        q, k, v = self.arrays(random, q_len=9, kv_len=12)
        table, floats = random.random((2, 1, 9, 12)) < 0.8, random.standard_normal((1, 4, 9, 12)).astype(np.float32)
        heads_first = [array.swapaxes(1, 2) for array in (q, k, v)]
        for align in ("top_left", "bottom_right"):
            own = mha.attention_forward(q, k, v, mask=mha.causal() & mha.window(5), align=align, allowed=table, scale=0.4, softcap=2.0,
                                        sink_logits=[1, 2, 3, 4], dropout=0.3, seed=9, return_lse=True, return_weights=True)
            torchs = sdpa(*heads_first, table, 0.3, True, 0.4, window=(5, 0), softcap=2.0, sinks=[1, 2, 3, 4], causal_align=align, seed=9,
                          return_lse=True, return_weights=True)
            assert np.array_equal(own.out.swapaxes(1, 2), torchs.out)
            assert np.array_equal(own.lse, torchs.lse) and np.array_equal(own.weights, torchs.weights)
        assert np.array_equal(mha.attention_forward(q, k, v, bias=floats).out.swapaxes(1, 2), sdpa(*heads_first, floats))

    def test_keys_beyond_kv_lengths_do_not_exist(self, random):
        q, k, v = self.arrays(random)
        out = np.full(q.shape[:3] + v.shape[3:], np.nan, np.float32)
        for lengths in ([4, 9], np.array([4, 9])):
            assert mha.attention_forward(q, k, v, kv_lengths=lengths, out=out).out is out
            for b, length in enumerate((4, 9)):
                alone = mha.attention_forward(q[b:b + 1], k[b:b + 1, :length], v[b:b + 1, :length]).out
                assert np.array_equal(out[b:b + 1], alone)

    @pytest.mark.parametrize("mask, seen", [
        (mha.Mask(), lambda i, j: i == i), (mha.causal(), lambda i, j: j <= i), (mha.prefix(3), lambda i, j: (j <= i) | (j < 3)),
        (mha.chunk(4), lambda i, j: i // 4 == j // 4), (mha.segments([0, 2, 5]), lambda i, j: (i >= 2) * 1 + (i >= 5) == (j >= 2) * 1 + (j >= 5)),
        (mha.window(2, 1, 1) & mha.causal(), lambda i, j: (j == 0) & (j <= i) | (j >= i - 2) & (j <= i)),
    ])
    def test_rules(self, random, mask, seen):
        q, k, v = self.arrays(random, q_len=9, kv_len=9)
        heads_first = [array.swapaxes(1, 2) for array in (q, k, v)]
        found = mha.attention_forward(q, k, v, mask=mask).out.swapaxes(1, 2)
        exact = oracle.attend(*heads_first, seen=seen(np.arange(9)[:, None], np.arange(9)))[0]
        oracle.check(found, exact, heads_first[2], "float32", 8)

    @pytest.mark.parametrize("options, error, text", [
        (dict(mask="causal"), TypeError, "mask is a str, must be a Mask"),
        (dict(mask=np.ones((7, 9), bool)), TypeError, "mask is a ndarray, must be a Mask"),
        (dict(mask=mha.causal()), ValueError, "needs align, since batch entry 0 has 7 queries and 9 keys"),
        (dict(align="left"), ValueError, "left"),
        (dict(align=None), TypeError, "align is None"),
        (dict(kv_lengths=[1]), ValueError, "kv_lengths has 1 entries, batch is 2"),
        (dict(kv_lengths=[1, 10]), ValueError, r"kv_lengths\[1\] is 10, k has length 9"),
        (dict(kv_lengths=[1.5, 2]), TypeError, "kv_lengths must hold one integer per batch entry"),
        (dict(allowed=np.ones((7, 9), bool)), ValueError, r"allowed has shape \[7, 9\]"),
        (dict(bias=np.ones((1, 1, 7, 9), np.int64)), TypeError, "bias is i64"),
        (dict(out=np.zeros((2, 4, 7, 5), np.float32)), ValueError, r"out has shape \[2, 4, 7, 5\], must be \[2, 7, 4, 5\]"),
        (dict(seed=-1), ValueError, "seed is -1"),
    ])
    def test_refusals(self, random, options, error, text):
        with pytest.raises(error, match=text):
            mha.attention_forward(*self.arrays(random), **options)

    def test_ranks(self, random):
        q, k, v = self.arrays(random)
        with pytest.raises(ValueError, match=r"q has shape \[7, 4, 8\], must be \[batch, length, heads, dim\]"):
            mha.attention_forward(q[0], k, v)


@pytest.mark.parametrize("dtype", [np.int64, bool])
def test_a_query_whose_dtype_is_read_but_not_computed(dtype):
    """Masks may be of it; without `out` the result would have to be."""
    q = np.zeros((2, 3, 4), dtype)
    with pytest.raises(TypeError, match="query is .*, must be f32, bf16, f16 or f64"):
        sdpa(q, q, q)
