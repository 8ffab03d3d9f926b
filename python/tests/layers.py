"""Layers with random weights, what they must give by the definition, and how near. Used by the tests of MultiheadAttention."""

import goldens
import numpy as np
import oracle

import mha


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
