"""The measures of heads from Python against their formulas in NumPy, on a small model's weights; captures of other programs; bad input."""

import json
import re

import goldens
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from test_model import tokenizer  # noqa: F401

import mha

U = 2.0**-24  # of f32: weights, values and outputs come from f32 arrays, both sides read the same


@pytest.fixture(scope="module")
def model():
    return mha.Transformer(goldens.DATA / "tiny_bert")


@pytest.fixture(scope="module")
def captured(model):
    return mha.capture_heads(model, [2, 7, 9, 11, 13, 8, 21, 3])


def tables(captured):
    """[layers, heads, n, n], f64."""
    return np.array([[layer.weights(head) for head in range(layer.q.shape[1])] for layer in captured.layers], np.float64)


def test_a_capture_holds_what_the_hook_was_given(model, captured):
    seen = []
    hidden = model([2, 7, 9, 11, 13, 8, 21, 3], hook=lambda layer, trace: seen.append((trace.v, trace.head_out, trace.weights(1))))
    assert hidden.shape == (8, model.config.d_model)
    assert len(captured.layers) == model.config.layers
    for layer, (v, head_out, weights) in zip(captured.layers, seen):
        np.testing.assert_array_equal(layer.v, v.swapaxes(1, 2))
        np.testing.assert_array_equal(layer.head_out, head_out.swapaxes(1, 2))
        np.testing.assert_array_equal(layer.weights(1), weights)
    with pytest.raises(ValueError, match="one text"):
        mha.capture_heads(model, [[1, 2], [3, 4]])


def test_norms_are_those_of_the_vectors_carried(model, captured):
    dim = model.config.head_dim
    for number, layer in enumerate(captured.layers):
        projection = model.output_projection(number)
        assert projection.shape == (model.config.d_model, model.config.heads * dim)
        for head in range(model.config.heads):
            columns = projection[:, head * dim:(head + 1) * dim].astype(np.float64)
            expected = np.linalg.norm(layer.v[0, head].astype(np.float64) @ columns.T, axis=-1)
            np.testing.assert_allclose(mha.value_norms(layer, projection, head), expected, rtol=U)
    with pytest.raises(ValueError, match="layer is 2"):
        model.output_projection(2)
    with pytest.raises(ValueError, match="head 4"):
        mha.value_norms(captured.layers[0], model.output_projection(0), 4)


def test_rollout_is_the_product_of_all_layers(captured):
    product = np.eye(8)
    for number, layer in enumerate(tables(captured)):
        product = (layer.mean(0) + np.eye(8)) / 2 @ product
        np.testing.assert_allclose(mha.rollout(captured, 3, layers=number + 1), product[3], atol=U)
    np.testing.assert_allclose(mha.rollout(captured, 2, 3), product[2:5].mean(0), atol=U)
    with pytest.raises(ValueError, match="pieces 7 to 9 of 8"):
        mha.rollout(captured, 7, 2)


def test_distances_and_their_map(captured):
    smooth = (0.999 * tables(captured) + 0.001 / 8).reshape(-1, 8, 8)
    expected = [[((p * np.log(2 * p / (p + q))).sum() + (q * np.log(2 * q / (p + q))).sum()) / 2 for q in smooth] for p in smooth]
    distances = mha.head_distances(captured)
    np.testing.assert_allclose(distances, expected, atol=U)
    np.testing.assert_allclose(mha.head_distances([captured, captured]), 2 * distances, rtol=U)
    np.testing.assert_array_equal(mha.head_distances(captured, num_threads=1), distances)
    points, shown = mha.plane_map(distances)
    assert points.shape == (8, 2) and 0 < shown <= 1
    square = [[0, 1, 2**0.5, 1], [1, 0, 1, 2**0.5], [2**0.5, 1, 0, 1], [1, 2**0.5, 1, 0]]
    corners = mha.plane_map(square)
    np.testing.assert_allclose(np.linalg.norm(corners.points[:, None] - corners.points[None], axis=-1), square, atol=U)
    with pytest.raises(ValueError, match="must be"):
        mha.plane_map([1.0, 2.0])


def test_similarities_are_linear_cka(captured):
    outputs = np.concatenate([layer.head_out[0] for layer in captured.layers]).astype(np.float64)
    outputs -= outputs.mean(1, keepdims=True)
    products = np.array([[np.linalg.norm(y.T @ x)**2 for x in outputs] for y in outputs])
    own = np.sqrt(np.diag(products))
    np.testing.assert_allclose(mha.head_similarities(captured), products / np.outer(own, own), rtol=U)


def test_removed_heads_keep_the_places_of_the_others(captured, tmp_path):
    tensors = load_file(goldens.DATA / "tiny_bert" / "model.safetensors")
    rows = np.r_[0:8, 16:32]  # all but head 1 of layer 0
    for name, tensor in tensors.items():
        if re.search(r"layer\.0\.attention\.self\.", name):
            tensors[name] = tensor[rows]
        elif re.search(r"layer\.0\.attention\.output\.dense\.weight", name):
            tensors[name] = np.ascontiguousarray(tensor[:, rows])
    save_file(tensors, tmp_path / "model.safetensors")
    config = json.loads((goldens.DATA / "tiny_bert" / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"pruned_heads": {"0": [1]}}))
    pruned = mha.capture_heads(mha.Transformer(tmp_path), captured.tokens["tokens"][0])
    there = np.arange(8) != 1
    for measure in (mha.head_distances, mha.head_similarities):
        table = measure(pruned)
        np.testing.assert_array_equal(np.isnan(table), ~(there & there[:, None]))
        first = [0, 2, 3]  # the heads beside it see what they saw
        np.testing.assert_allclose(table[np.ix_(first, first)], measure(captured)[np.ix_(first, first)], rtol=64 * U)
    points, shown = mha.plane_map(mha.head_distances(pruned))
    np.testing.assert_array_equal(np.isnan(points), ~np.stack([there, there], 1))
    kept = mha.plane_map(mha.head_distances(pruned)[np.ix_(there, there)])
    np.testing.assert_array_equal(points[there], kept.points)
    assert shown == kept.shown


def test_ready_weights_without_values():
    weights = np.zeros((1, 2, 3, 3), np.float32)
    weights[0, 0] = np.eye(3)
    weights[0, 1, :, 0] = 1
    layer = mha.CapturedLayer("layer", None, None, ready=weights)
    ready = mha.Capture("", "", None, {}, {}, [layer])
    np.testing.assert_array_equal(mha.rollout(ready, 2), [0.25, 0, 0.75])
    assert mha.head_distances(ready)[0, 1] > 1
    with pytest.raises(ValueError, match="no head_out"):
        mha.head_similarities(ready)
    with pytest.raises(ValueError, match="no v"):
        mha.value_norms(layer, np.zeros((2, 4), np.float32), 0)


def test_repeated_tokens(tokenizer, model):  # noqa: F811
    text = mha.repeated_text(tokenizer, 3, seed=4)
    assert text.ids[1:4] == text.ids[4:7] and (text.first, text.period, len(text.ids)) == (1, 3, 8)
    assert len(set(text.ids)) == 5
    captured = mha.capture_heads(model, text.ids)
    scores = mha.repeated_scores(captured, text)
    weights = tables(captured)
    for back, rows, got in ((1, range(2, 7), scores.previous), (3, range(4, 7), scores.duplicate), (2, range(4, 7), scores.induction)):
        assert got.shape == (model.config.layers, model.config.heads)
        np.testing.assert_allclose(got, np.mean([weights[..., row, row - back] for row in rows], axis=0), atol=U)
    with pytest.raises(ValueError, match="whole words"):
        mha.repeated_text(tokenizer, 50)
    with pytest.raises(ValueError, match="tokens"):
        mha.repeated_scores(captured, text._replace(ids=text.ids[:-1]))
