"""return_stats against the same numbers computed by NumPy from the weights."""

import numpy as np
import pytest

import mha


def arrays(shape, kv_len=None, seed=0):
    rng = np.random.default_rng(seed)
    kv_shape = (*shape[:-2], kv_len or shape[-2], shape[-1])
    return tuple(rng.standard_normal(s).astype(np.float32) for s in (shape, kv_shape, kv_shape))


def from_weights(weights, chosen=None):
    """The numbers of rows, from whole tables of float64 weights with queries at their own places."""
    w = weights.astype(np.float64)
    away = np.abs(np.arange(w.shape[-2])[:, None] - np.arange(w.shape[-1]))
    total = np.maximum(w.sum(-1), 1e-300)
    mean = (w * away).sum(-1) / total
    return {
        "entropy": -(w * np.log(np.where(w > 0, w, 1))).sum(-1),
        "distance": mean,
        "distance_variance": (w * (away - mean[..., None])**2).sum(-1) / total,
        "first_weight": w[..., 0],
        "chosen_weight": None if chosen is None else (w * chosen).sum(-1),
        "max_key": w.argmax(-1),
    }


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"window": (9, 2)}, {"softcap": 2.0}, {"alibi_slopes": [0.5, 0.25, 0.125]}])
def test_numbers_are_those_of_the_weights(options):
    q, k, v = arrays((2, 3, 67, 16))
    chosen = np.arange(67) % 5 == 0
    got = mha.scaled_dot_product_attention(q, k, v, return_weights=True, return_stats=True, chosen_keys=chosen, **options)
    for name, expected in from_weights(got.weights, chosen).items():
        found = getattr(got.stats, name)
        assert found.shape == (2, 3, 67)
        assert found.dtype == (np.int64 if name == "max_key" else np.float32)
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-4 if name == "distance_variance" else 2e-6, err_msg=name)


def test_max_score_is_the_largest_score():
    q, k, v = arrays((1, 2, 30, 8))
    stats = mha.scaled_dot_product_attention(q, k, v, return_stats=True).stats
    scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2) / np.sqrt(8)
    np.testing.assert_allclose(stats.max_score, scores.max(-1), rtol=1e-5)
    assert stats.chosen_weight is None


def test_out_is_the_same_with_and_without():
    q, k, v = arrays((2, 3, 67, 16))
    np.testing.assert_array_equal(mha.scaled_dot_product_attention(q, k, v, return_stats=True).out, mha.scaled_dot_product_attention(q, k, v))


@pytest.mark.parametrize("shape", [(5, 8), (3, 5, 8), (2, 2, 3, 5, 8)])
def test_any_rank(shape):
    q, k, v = arrays(shape)
    chosen = np.arange(5) == 2
    got = mha.scaled_dot_product_attention(q, k, v, return_weights=True, return_stats=True, chosen_keys=chosen)
    np.testing.assert_allclose(got.stats.chosen_weight, got.weights[..., 2], rtol=1e-6)
    assert got.stats.entropy.shape == shape[:-1]


def test_own_names_and_f64():
    q, k, v = (a.transpose(0, 2, 1, 3).astype(np.float64) for a in arrays((2, 3, 20, 8)))
    chosen = np.zeros((2, 20), bool)
    chosen[1, 3] = True
    got = mha.attention_forward(q, k, v, return_stats=True, return_weights=True, chosen=chosen)
    assert got.stats.entropy.dtype == np.float64
    np.testing.assert_allclose(got.stats.entropy, from_weights(got.weights)["entropy"], rtol=1e-12)
    np.testing.assert_array_equal(got.stats.chosen_weight[0], 0)
    np.testing.assert_allclose(got.stats.chosen_weight[1], got.weights[1, ..., 3], rtol=1e-12)


def test_a_row_that_sees_nothing():
    q, k, v = arrays((1, 1, 4, 8))
    stats = mha.scaled_dot_product_attention(q, k, v, attn_mask=np.zeros((4, 4), bool), return_stats=True).stats
    assert (stats.max_score == -np.inf).all() and (stats.max_key == -1).all()
    assert all((getattr(stats, name) == 0).all() for name in ("entropy", "distance", "distance_variance", "first_weight"))


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"window": (9, 2)}, {"sinks": [0.5, 1.0, 2.0]}])
def test_links_are_the_largest_weights(options):
    q, k, v = arrays((2, 3, 67, 16))
    got = mha.scaled_dot_product_attention(q, k, v, return_weights=True, links=8, **options)
    order = np.argsort(-got.weights, axis=-1, kind="stable")[..., :8]
    largest = np.take_along_axis(got.weights, order, -1)
    np.testing.assert_array_equal(got.stats.link_weights, largest)
    np.testing.assert_array_equal(got.stats.link_keys, np.where(largest > 0, order, -1))
    assert got.stats.link_keys.dtype == np.int64
    assert got.stats.entropy is None


def test_links_go_with_stats_and_own_names():
    q, k, v = (a.transpose(0, 2, 1, 3).astype(np.float64) for a in arrays((1, 2, 5, 8)))
    stats = mha.attention_forward(q, k, v, return_stats=True, links=7).stats
    assert stats.link_weights.shape == (1, 2, 5, 7) and stats.link_weights.dtype == np.float64
    np.testing.assert_array_equal(stats.link_keys[..., 0], stats.max_key)
    np.testing.assert_array_equal(stats.link_keys[..., 5:], -1)
    np.testing.assert_allclose(stats.link_weights.sum(-1), 1, rtol=1e-12)


def test_links_of_one_head_and_of_many_axes():
    q, k, v = arrays((2, 2, 3, 5, 8))
    whole = mha.scaled_dot_product_attention(q, k, v, links=2).stats
    part = mha.scaled_dot_product_attention(q[1, 0, 2], k[1, 0, 2], v[1, 0, 2], links=2).stats
    np.testing.assert_array_equal(whole.link_keys[1, 0, 2], part.link_keys)
    np.testing.assert_array_equal(whole.link_weights[1, 0, 2], part.link_weights)


def test_errors():
    q, k, v = arrays((1, 2, 4, 8), kv_len=6)
    with pytest.raises(ValueError, match="chosen_keys is given, but return_stats"):
        mha.scaled_dot_product_attention(q, k, v, chosen_keys=np.ones(6, bool))
    with pytest.raises(TypeError, match="chosen is f32, must be bool|chosen_keys is f32, must be bool|must be bool"):
        mha.scaled_dot_product_attention(q, k, v, return_stats=True, chosen_keys=np.ones(6, np.float32))
    with pytest.raises(ValueError):
        mha.scaled_dot_product_attention(q, k, v, return_stats=True, chosen_keys=np.ones(5, bool))
    for links in (-1, 33):
        with pytest.raises(ValueError, match=f"links is {links}, must be 0 to 32"):
            mha.scaled_dot_product_attention(q, k, v, links=links)
    with pytest.raises(TypeError, match="links is 1.5"):
        mha.scaled_dot_product_attention(q, k, v, links=1.5)
    with pytest.raises(ValueError, match="a distance needs align"):
        mha.attention_forward(*(a.transpose(0, 2, 1, 3) for a in (q, k, v)), return_stats=True)


def test_torch_and_its_compiler():
    torch = pytest.importorskip("torch")
    q, k, v = (torch.from_numpy(a) for a in arrays((1, 2, 12, 8)))
    chosen = torch.arange(12) > 8

    def attend(q, k, v):
        return mha.scaled_dot_product_attention(q, k, v, is_causal=True, return_stats=True, chosen_keys=chosen, links=3)

    eager = attend(q, k, v)
    compiled = torch.compile(attend, backend="aot_eager", fullgraph=True)(q, k, v)
    for name, found in eager.stats._asdict().items():
        assert isinstance(found, torch.Tensor)
        torch.testing.assert_close(getattr(compiled.stats, name), found, rtol=0, atol=0)
