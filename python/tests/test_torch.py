"""scaled_dot_product_attention on torch tensors: beside torch's own, under torch.compile, and what only torch can get wrong."""

import itertools
import threading
import warnings

import numpy as np
import oracle
import pytest

import mha

torch = pytest.importorskip("torch")
functional = torch.nn.functional
sdpa = mha.scaled_dot_product_attention


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(20261130)


def problem(lead=(2, 4), q_len=7, kv_len=9, head_dim=8, value_dim=5, dtype=torch.float32, kv_lead=None):
    kv_lead = lead if kv_lead is None else kv_lead
    shapes = (*lead, q_len, head_dim), (*kv_lead, kv_len, head_dim), (*kv_lead, kv_len, value_dim)
    return [torch.randn(shape).to(dtype) for shape in shapes]


def check(found, *arguments, **options):
    """`found` beside torch's own on the same numbers in f64."""
    wide = [argument.double() if isinstance(argument, torch.Tensor) and argument.is_floating_point() else argument for argument in arguments]
    exact = functional.scaled_dot_product_attention(*wide, **options)
    assert isinstance(found, torch.Tensor)
    q, v = arguments[0], arguments[2]
    name = str(found.dtype).removeprefix("torch.")
    oracle.check(found.double().numpy(), exact.numpy(), v.double().numpy(), name, q.shape[-1])


DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (2, 2, 3)])
def test_every_rank_and_dtype(lead, dtype):
    q, k, v = problem(lead, dtype=dtype)
    out = sdpa(q, k, v)
    assert out.dtype == dtype
    check(out, q, k, v)


MASKS = [None, "causal", (7, 9), (1, 9), (4, 1, 9), (2, 1, 7, 9), (2, 4, 7, 1)]


@pytest.mark.parametrize("mask, floats, scale, groups", [
    *itertools.product(MASKS, [False, True], [None, 0.0, -0.3], [1, 2]), ((2, 1, 7, 9), False, 0.5, 4)])
def test_as_torch_has_it(mask, floats, scale, groups):
    q, k, v = problem(kv_lead=(2, 4 // groups))
    options = {"scale": scale, "enable_gqa": groups > 1}
    if mask == "causal":
        options["is_causal"] = True
    elif mask is not None:
        options["attn_mask"] = torch.randn(mask) if floats else torch.rand(mask) < 0.7
    found = sdpa(q, k, v, **options)
    if floats and mask not in (None, "causal"):
        options["attn_mask"] = options["attn_mask"].double()
    check(found, q, k, v, **options)


@pytest.mark.parametrize("leads", [((2, 3), (1, 3), (3,)), ((2, 3), (1,), ()), ((1,), (2, 3), (2, 1)), ((2, 3), (2, 1), (2, 1))])
def test_leading_axes_broadcast_as_torch_has_it(leads):
    q, k, v = (problem(lead)[i] for i, lead in enumerate(leads))
    check(sdpa(q, k, v), q, k, v)


def test_strides_are_taken_as_they_are_and_memory_of_the_output_goes_as_torchs():
    q, k, v = (tensor.transpose(1, 2) for tensor in problem((2, 7), 4, 4, value_dim=8))
    out = sdpa(q, k, v)
    assert out.stride() == functional.scaled_dot_product_attention(q, k, v).stride()
    assert out.transpose(1, 2).reshape(2, 7, 32).data_ptr() == out.data_ptr(), "joining heads copies nothing"
    assert torch.equal(out, sdpa(q.contiguous(), k.contiguous(), v.contiguous()))
    assert torch.equal(out, sdpa(q, k.expand(2, 4, 7, 8), v.mT.contiguous().mT))


def test_results_asked_for():
    q, k, v = problem(dtype=torch.bfloat16)
    out, lse, weights, stats = sdpa(q, k, v, return_lse=True, return_weights=True)
    assert (out.dtype, lse.dtype, weights.dtype, stats) == (torch.bfloat16, torch.float32, torch.float32, None)
    assert torch.equal(out, sdpa(q, k, v)) and lse.shape == (2, 4, 7) and weights.shape == (2, 4, 7, 9)
    assert torch.allclose(weights.sum(-1), torch.ones(2, 4, 7))


def test_kinds_may_be_mixed_and_the_query_decides():
    q, k, v = problem()
    mask = np.random.default_rng(0).random((7, 9)) < 0.7
    sinks = np.arange(4.0)
    found = sdpa(q, k.numpy(), v, mask, sinks=sinks)
    assert isinstance(found, torch.Tensor) and torch.equal(found, sdpa(q, k, v, torch.from_numpy(mask), sinks=torch.from_numpy(sinks)))
    other = sdpa(q.numpy(), k, v, torch.from_numpy(mask), sinks=list(sinks))
    assert isinstance(other, np.ndarray) and np.array_equal(other, found.numpy())


def test_manual_seed_makes_dropout_reproducible():
    q, k, v = problem()
    draw = lambda: sdpa(q, k, v, dropout_p=0.5)
    torch.manual_seed(1)
    first, second = draw(), draw()
    torch.manual_seed(1)
    assert torch.equal(first, draw()) and not torch.equal(first, second)
    assert torch.equal(sdpa(q, k, v, dropout_p=0.5, seed=7).mT.contiguous().mT, torch.from_numpy(sdpa(q.numpy(), k.numpy(), v.numpy(), dropout_p=0.5, seed=7)))
    state = torch.get_rng_state()
    sdpa(q, k, v)
    assert torch.equal(state, torch.get_rng_state()), "no dropout draws nothing"


class TestGradients:
    @pytest.mark.parametrize("which", ["query", "key", "value", "attn_mask", "sinks", "alibi_slopes", "scale", "out"])
    def test_are_refused_rather_than_lost(self, which):
        arguments = dict(zip(("query", "key", "value"), problem()))
        extra = {"attn_mask": torch.zeros(7, 9), "sinks": torch.zeros(4), "alibi_slopes": torch.ones(4), "scale": torch.tensor(0.5), "out": torch.empty(2, 4, 7, 5)}
        arguments.update({which: extra[which]} if which in extra else {})
        arguments[which].requires_grad_()
        with pytest.raises(ValueError, match=f"{which} requires grad, and mha computes no gradients"):
            sdpa(**arguments)
        with torch.no_grad():
            assert not sdpa(**arguments).requires_grad or which == "out"

    def test_parameters_under_inference_mode(self):
        q, k, v = (torch.nn.Parameter(tensor) for tensor in problem())
        with torch.inference_mode():
            check(sdpa(q, k, v), q.detach(), k.detach(), v.detach())

    def test_a_numpy_query_hides_no_gradient_of_the_others(self):
        q, k, v = problem()
        with pytest.raises(ValueError, match="value requires grad"):
            sdpa(q.numpy(), k, v.requires_grad_())


class TestRefusals:
    def test_other_devices(self):
        q, k, v = problem()
        for at, name in enumerate(("query", "key", "value")):
            tensors = [q, k, v]
            tensors[at] = tensors[at].to("meta")
            with pytest.raises(ValueError, match=f"{name} is on device meta, must be on cpu"):
                sdpa(*tensors)

    @pytest.mark.parametrize("make, text", [
        (lambda q: q.to_sparse(), "query"),
        (lambda q: torch.complex(q, q), "query is complex64"),
        (lambda q: q.to(torch.float8_e4m3fn), "query"),
        (lambda q: q.int(), "query is int32"),
        (lambda q: torch.quantize_per_tensor(q, 0.1, 0, torch.qint8), "query"),
    ])
    def test_tensors_that_are_no_dense_real_numbers(self, make, text):
        q, k, v = problem()
        with pytest.raises(TypeError, match=text):
            sdpa(make(q), k, v)

    def test_lazily_negated_tensors(self):
        """DLPack hands out their memory, which holds the numbers before the minus."""
        q, k, v = problem()
        assert torch.equal(sdpa(torch._neg_view(q), k, v), sdpa(-q, k, v))
        with pytest.raises(ValueError, match="out is a lazily negated view"):
            sdpa(q, k, v, out=torch._neg_view(torch.empty(2, 4, 7, 5)))

    def test_vmap(self):
        q, k, v = problem((3, 2, 4))
        with pytest.raises((TypeError, ValueError, RuntimeError), match="query|vmap|batching"):
            torch.vmap(sdpa)(q, k, v)

    def test_out(self):
        q, k, v = problem()
        out = torch.empty(2, 4, 7, 5)
        assert sdpa(q, k, v, out=out) is out and torch.equal(out, sdpa(q, k, v))
        with pytest.raises(TypeError, match="out is f64, must be f32"):
            sdpa(q, k, v, out=out.double())


class TestCompile:
    """torch.compile, whole graphs only: the operator, not a break in the graph. "aot_eager" traces all that "inductor" does."""

    @pytest.fixture(autouse=True)
    def fresh(self):
        torch._dynamo.reset()
        with torch.no_grad():
            yield

    @staticmethod
    def layer(q, k, v, mask):
        found = sdpa(q * 2, k, v, mask, is_causal=True, window=(5, 0), sinks=[0.5, 1.0, 1.5, 2.0], return_lse=True)
        return found.out + 1, found.lse

    @pytest.mark.parametrize("backend", ["eager", "aot_eager"])
    @pytest.mark.parametrize("dynamic", [False, True])
    def test_whole_graphs_give_the_same(self, backend, dynamic):
        compiled = torch.compile(self.layer, fullgraph=True, backend=backend, dynamic=dynamic)
        for length in (7, 11):
            q, k, v = (tensor.transpose(1, 2) for tensor in problem((2, length), 4, 4))
            mask = torch.rand(length, length) < 0.8
            for found, expected in zip(compiled(q, k, v, mask), self.layer(q, k, v, mask)):
                assert torch.equal(found, expected) and found.stride() == expected.stride()

    def test_dropout_draws_anew_at_every_call(self):
        q, k, v = problem()
        compiled = torch.compile(lambda q, k, v: sdpa(q, k, v, dropout_p=0.5), fullgraph=True, backend="aot_eager")
        torch.manual_seed(1)
        first, second = compiled(q, k, v), compiled(q, k, v)
        torch.manual_seed(1)
        assert torch.equal(first, sdpa(q, k, v, dropout_p=0.5)) and not torch.equal(first, second)
        seeded = torch.compile(lambda q, k, v: sdpa(q, k, v, dropout_p=0.5, seed=2**64 - 1), fullgraph=True, backend="aot_eager")
        assert torch.equal(seeded(q, k, v), sdpa(q, k, v, dropout_p=0.5, seed=2**64 - 1))

    def test_out(self):
        q, k, v = problem()
        out = torch.empty(2, 4, 7, 5)
        torch.compile(lambda q, k, v, out: sdpa(q, k, v, out=out), fullgraph=True, backend="aot_eager")(q, k, v, out)
        assert torch.equal(out, sdpa(q, k, v))

    def test_a_tensor_that_requires_grad_is_refused(self):
        q, k, v = problem()
        with torch.enable_grad(), pytest.raises(Exception, match="requires grad|Observed exception"):
            torch.compile(sdpa, fullgraph=True, backend="eager")(q.requires_grad_(), k, v)

    def test_inductor(self, pytestconfig):
        if not pytestconfig.getoption("--slow"):
            pytest.skip("compiles C++: --slow")
        q, k, v = (tensor.transpose(1, 2) for tensor in problem((2, 7), 4, 4))
        mask = torch.rand(7, 7) < 0.8
        for found, expected in zip(torch.compile(self.layer, fullgraph=True)(q, k, v, mask), self.layer(q, k, v, mask)):
            assert torch.equal(found, expected)

    def test_export(self):
        class Module(torch.nn.Module):
            def forward(self, q, k, v):
                return sdpa(q, k, v, is_causal=True)

        arguments = tuple(problem())
        assert torch.equal(torch.export.export(Module(), arguments).module()(*arguments), sdpa(*arguments, is_causal=True))


@pytest.mark.parametrize("options", [{}, {"return_lse": True, "return_weights": True}, {"is_causal": True, "scale": 0.5, "window": [2, 0]},
                                     {"seed": -1, "dropout_p": 0.5}])
def test_the_operator_is_what_torch_wants_of_one(options):
    torch.library.opcheck(torch.ops.mha.scaled_dot_product_attention.default, tuple(problem()), options)
    torch.library.opcheck(torch.ops.mha.scaled_dot_product_attention.default, tuple(problem((), kv_lead=(3, 4))), options)


def test_fake_tensors_know_every_shape():
    from torch._subclasses.fake_tensor import FakeTensorMode

    for leads in (((), ()), ((3,), (3,)), ((2, 1, 4), (5, 1)), ((2, 4), (2, 4))):
        for dtype in (torch.float16, torch.float64):
            real = problem(leads[0], kv_lead=leads[1], dtype=dtype)
            expected = sdpa(*real, return_lse=True, return_weights=True)
            with FakeTensorMode() as mode:
                fake = sdpa(*(mode.from_tensor(tensor) for tensor in real), return_lse=True, return_weights=True)
            for found, one in zip(fake[:3], expected[:3]):
                assert (found.shape, found.dtype, found.stride()) == (one.shape, one.dtype, one.stride())


def test_many_threads_of_torch_tensors():
    q, k, v = problem((1, 4), 200, 200, 64, 64)
    expected, faults = sdpa(q, k, v), []

    def work():
        for _ in range(20):
            if not torch.equal(sdpa(q, k, v), expected):
                faults.append(1)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


@pytest.mark.parametrize("name, align", [("causal_upper_left", "top_left"), ("causal_lower_right", "bottom_right")])
@pytest.mark.parametrize("compiled", [False, True])
def test_torchs_causal_biases(name, align, compiled):
    """Objects of torch.nn.attention.bias are tensors with nothing in their memory: their rule is what they mean."""
    q, k, v = problem()
    call = torch.compile(sdpa, backend="eager", fullgraph=True) if compiled else sdpa
    bias = getattr(torch.nn.attention.bias, name)(7, 9)
    assert torch.equal(call(q, k, v, bias), sdpa(q, k, v, is_causal=True, causal_align=align))
    with pytest.raises(ValueError, match="should not be used with causal=True"):
        sdpa(q, k, v, bias, is_causal=True)
    with pytest.raises(ValueError, match=r"CausalBias of \[7, 9\], must be of \[7, 8\]"):
        sdpa(q, k[..., :8, :], v[..., :8, :], bias)
    if align == "bottom_right":
        with pytest.raises(ValueError, match="causal_align is top_left"):
            sdpa(q, k, v, bias, window=(2, 0))


def test_classes_that_say_themselves_what_they_mean_are_refused():
    class Absent(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *arguments, **options):
            return super().__torch_function__(*arguments, **options)

    q, k, v = problem()
    mask = torch.zeros(7, 9).as_subclass(Absent)
    with pytest.raises(TypeError, match="attn_mask is a Absent, must be a plain tensor"):
        sdpa(q, k, v, mask)
    with pytest.raises(TypeError, match="key is a Absent, must be a plain tensor"):
        sdpa(q, k.as_subclass(Absent), v)
    for layout in (torch.strided, torch.jagged):
        nested = torch.nested.nested_tensor([torch.randn(3, 2, 8), torch.randn(4, 2, 8)], layout=layout)
        with pytest.raises(TypeError, match="query is a nested tensor"):
            sdpa(nested, nested, nested)
    assert torch.equal(sdpa(torch.nn.Parameter(q, requires_grad=False), k, v), sdpa(q, k, v))


def test_what_is_recorded_holds_the_call():
    """make_fx and torch.jit.trace follow plain tensors through torch's operators: the call must be one of them, not the memory it wrote."""
    q, k, v = problem()
    other = torch.randn_like(q)
    call = lambda query: sdpa(query, k, v, is_causal=True)  # noqa: E731
    recorded = torch.fx.experimental.proxy_tensor.make_fx(call)(q)
    assert torch.equal(recorded(other), call(other))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated
        traced = torch.jit.trace(call, q)
    assert torch.equal(traced(other), call(other))


def test_tangents_are_refused():
    q, k, v = problem()
    forward = torch.autograd.forward_ad
    with forward.dual_level():
        sdpa(q, k, v)
        for name, arguments in (("query", (forward.make_dual(q, q), k, v)), ("value", (q, k, forward.make_dual(v, v)))):
            with pytest.raises(ValueError, match=f"{name} has a tangent"):
                sdpa(*arguments)


def test_only_the_operator_is_recorded():
    """The layer and the library's own call are no operators of torch: recorded, they would be the memory they wrote."""
    layer = mha.MultiheadAttention(8, 2, dtype=torch.float32).eval()
    rows, heads = torch.randn(5, 3, 8), torch.randn(1, 5, 2, 8)
    for call, tensor in ((lambda t: layer(t, t, t)[0], rows), (lambda t: mha.attention_forward(t, t, t).out, heads)):
        call(tensor)
        for record in (lambda c, t: torch.fx.experimental.proxy_tensor.make_fx(c)(t), torch.jit.trace):
            with pytest.raises(ValueError, match="is being recorded"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                record(call, tensor)
        with torch._subclasses.FakeTensorMode(), pytest.raises(TypeError, match="is a FakeTensor, must be a plain tensor"):
            call(torch.empty(tensor.shape))


def test_tensors_whose_memory_is_gone_are_refused():
    q, k, v = problem()
    k.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match=r"key has shape \[2, 4, 9, 8\] and no memory"):
        sdpa(q, k, v)
