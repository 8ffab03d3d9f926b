"""MultiheadAttention against torch.nn.MultiheadAttention, where torch is installed, and with arrays of torch and JAX."""

import collections
import itertools
import warnings

import goldens
import numpy as np
import oracle
import pytest
from layers import near, small

import mha

INF = float("inf")
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


def test_jax_in_jax_out(random):
    jax = pytest.importorskip("jax")
    layer, x = small(random, add_bias_kv=True)
    mask, padding = random.random((5, 5)) < 0.3, random.standard_normal((2, 5)).astype(np.float32)
    wanted = layer(x, x, x, padding, attn_mask=mask)
    given = [jax.numpy.asarray(array) for array in (x, padding, mask)]
    layer.load_state_dict({name: jax.numpy.asarray(array) for name, array in layer.state_dict().items()})
    for found, exact in zip(layer(given[0], given[0], given[0], given[1], attn_mask=given[2]), wanted):
        assert isinstance(found, jax.Array)
        np.testing.assert_array_equal(np.asarray(found), exact)


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
