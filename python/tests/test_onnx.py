"""mha.onnx: ONNX's own backend tests, unmodified; random problems against the float64 umpire of tests/conformance; and what is refused."""

import pathlib
import re
import sys
import unittest
import warnings

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("safetensors")  # attend.py wants it

import mha.onnx  # noqa: E402 - wants onnx

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tests/conformance"))
import attend  # noqa: E402 - how far results are off, as the conformance scripts measure it
import random_problems  # noqa: E402
import umpire  # noqa: E402

helper = onnx.helper

# Cases whose Attention node asks for an output the library has no feature for: name after "test_attention_" -> qk_matmul_output_mode.
RAW_SCORES = {
    "3d_with_past_and_present_qk_matmul": 0,
    "3d_with_past_and_present_qk_matmul_bias": 2,
    "3d_with_past_and_present_qk_matmul_softcap": 1,
    "4d_with_past_and_present_qk_matmul": 0,
    "4d_with_past_and_present_qk_matmul_bias": 2,
    "4d_with_past_and_present_qk_matmul_bias_3d_mask": 2,
    "4d_with_past_and_present_qk_matmul_bias_3d_mask_causal": 2,
    "4d_with_past_and_present_qk_matmul_bias_4d_mask": 2,
    "4d_with_past_and_present_qk_matmul_bias_4d_mask_causal": 2,
    "4d_with_qk_matmul": 0,
    "4d_with_qk_matmul_bias": 2,
    "4d_with_qk_matmul_softcap": 1,
}


class Recording(mha.onnx.Backend):
    """The backend, and what it made of each model: onnx's runner counts a refusal as a pass, so it is noted here."""

    operators: set[str] = set()
    refusal: str | None = None

    @classmethod
    def prepare(cls, model, device="CPU", **kwargs):
        cls.operators, cls.refusal = {node.op_type for node in model.graph.node}, None
        try:
            return super().prepare(model, device, **kwargs)
        except unittest.SkipTest as refused:
            cls.refusal = str(refused)
            raise


@pytest.fixture(scope="module")
def outcomes():
    """Case of onnx's node tests -> (operators of its model, why it was refused, its error)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of making the cases
        import onnx.backend.test

        cases = onnx.backend.test.BackendTest(Recording, __name__).test_cases["OnnxBackendNodeModelTest"]
        results = {}
        for name in unittest.defaultTestLoader.getTestCaseNames(cases):
            if name.endswith("_cuda"):
                continue
            result = unittest.TestResult()
            Recording.operators, Recording.refusal = set(), "not prepared"
            cases(name).run(result)
            error = None if result.wasSuccessful() else (result.errors + result.failures)[0][1]
            results[name.removesuffix("_cpu")] = (Recording.operators, Recording.refusal, error)
    return results


def test_onnx_backend_suite(outcomes, capsys):
    """Every case of one Attention node passes, but for those listed, which are refused for the reason listed."""
    own = {name: outcome for name, outcome in outcomes.items() if outcome[0] == {"Attention"}}
    wrong = {name: error for name, (_, _, error) in own.items() if error}
    assert not wrong
    refused = {name.removeprefix("test_attention_"): refusal for name, (_, refusal, _) in own.items() if refusal}
    assert {name: int(re.search(r"mode (\d)", text)[1]) for name, text in refused.items()} == RAW_SCORES
    with capsys.disabled():
        print(f"\ncounts: ONNX backend tests ({onnx.__version__}): {len(own) - len(refused)} of {len(own)} of Attention pass, "
              f"{len(refused)} are refused by name: raw scores are not kept")
    assert len(own) >= 93


def test_onnx_backend_suite_other_operators(outcomes):
    """Whatever is no Attention node is refused, the function bodies of Attention ("_expanded": MatMul, Softmax, ...) too: nothing is run by
    something else in our name."""
    others = {name: outcome for name, outcome in outcomes.items() if outcome[0] != {"Attention"}}
    assert not [name for name, (_, refusal, error) in others.items() if error or not refusal or "is not Attention" not in refusal]
    assert {f"{name}_expanded" for name, outcome in outcomes.items() if outcome[0] == {"Attention"}} <= others.keys()


def node_of(case):
    given = {name: array for name, array in case.inputs.items() if array is not None}
    names = [name if name in given else "" for name in case.inputs]
    while not names[-1]:
        names.pop()
    outputs = list(case.outputs)
    while not outputs[-1]:
        outputs.pop()
    return helper.make_node(case.op, names, outputs, **case.attrs), given


@pytest.mark.parametrize("start", range(0, 450, 45))
def test_random_problems_against_the_umpire(start):
    for number in range(start, start + 45, 3):  # every third is of Attention
        case = random_problems.problem(20261130, number)
        node, given = node_of(case)
        got = mha.onnx.run_node(node, list(given.values()), opset_version=case.opset)
        verdict = umpire.judge(case)
        for name, array in zip([name for name in case.outputs if name], got, strict=True):
            assert array.dtype == case.inputs["Q"].dtype
            assert attend.excess(array, verdict.exact[name], verdict.ours[name]) <= 1, f"problem {number}, {name}: {case}"


def tensors(random, dtype=np.float32):
    """Q, K, V of batch 2, 2 heads on 1 of keys, q_len 3, kv_len 5, head_dim 4 and value_dim 6."""
    return {name: random.standard_normal(shape).astype(dtype) for name, shape in zip("QKV", ((2, 2, 3, 4), (2, 1, 5, 4), (2, 1, 5, 6)))}


def run(inputs, outputs=("Y",), opset=25, **attrs):
    return mha.onnx.run_node(helper.make_node("Attention", list(inputs), list(outputs), **attrs), inputs, opset_version=opset)


def check(inputs, got, **attrs):
    """`got` is within its bound of what the umpire says; inputs of dtypes NumPy does not know are taken as f32, and `got` rounded once."""
    dtype = inputs["Q"].dtype
    plain = {n: x.astype(np.float32) if x.dtype.name == "bfloat16" else x for n, x in inputs.items()}
    verdict = umpire.judge(random_problems.Case("Attention", "", 25, attrs, plain, ["Y"]))
    assert got.dtype == dtype
    rounding = {"bfloat16": 2.0**-8, "float16": 2.0**-11}.get(dtype.name, 0) * np.abs(verdict.exact["Y"])
    assert attend.excess(got.astype(np.float64), verdict.exact["Y"], verdict.ours["Y"] + rounding) <= 1


@pytest.mark.parametrize("kind", ["uint8", "int8", "int64", "uint64", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_masks_of_any_number(random, dtype, kind):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    named = lambda name: getattr(ml_dtypes, name) if name == "bfloat16" else np.dtype(name)  # noqa: E731
    inputs = tensors(random, dtype=named(dtype))
    inputs["attn_mask"] = random.integers(0, 4, (3, 5)).astype(named(kind))
    check(inputs, run(inputs)[0])


def test_a_finite_mask_hides_nothing(random):
    """A row of -1e300 is uniform beside itself; beyond f32 it must not become -inf, which would make the row empty."""
    inputs = tensors(random)
    inputs["attn_mask"] = np.full((3, 5), -1e300)
    wanted = inputs["V"].mean(axis=2, keepdims=True).repeat(2, axis=1).repeat(3, axis=2)
    np.testing.assert_allclose(run(inputs)[0], wanted, rtol=0, atol=8 * 2.0**-24 * np.abs(inputs["V"]).max())


def test_values_of_another_dtype(random):
    inputs = tensors(random, dtype=np.float16)
    inputs["V"] = inputs["V"].astype(np.float32)
    got = run(inputs)[0]
    check(inputs, got)


@pytest.mark.parametrize("precision, in_f64", [(11, True), (1, False)])
def test_a_softmax_of_f64_makes_the_whole_call_f64(random, precision, in_f64):
    inputs = tensors(random)
    exact = run({name: array.astype(np.float64) for name, array in inputs.items()})[0].astype(np.float32)
    assert np.array_equal(run(inputs, softmax_precision=precision)[0], exact) == in_f64


def test_lengths_cut_off_what_lies_beyond(random):
    inputs = tensors(random)
    inputs |= {"K": inputs["K"].copy(), "V": inputs["V"].copy()}
    inputs["K"][0, :, 2:] = np.nan
    inputs["V"][0, :, 2:] = np.inf
    lengths = {"nonpad_kv_seqlen": np.array([2, 0])}
    node = helper.make_node("Attention", ["Q", "K", "V", "", "", "", "nonpad_kv_seqlen"], ["Y", "", "", "W"], qk_matmul_output_mode=3)
    y, weights = mha.onnx.run_node(node, inputs | lengths)
    own = {name: array[:1, :, :2] if name != "Q" else array[:1] for name, array in inputs.items()}
    np.testing.assert_array_equal(y[:1], run(own)[0])
    assert not y[1].any() and not weights[1].any() and not weights[0, :, :, 2:].any()
    np.testing.assert_allclose(weights[0].sum(axis=-1), 1, rtol=1e-6)


def test_present_without_past_is_the_keys(random):
    inputs = tensors(random)
    present_key = run(inputs, ("Y", "present_key", "present_value"))[1]
    np.testing.assert_array_equal(present_key, inputs["K"])


def model_of(nodes, inputs, outputs, initializers=()):
    value = lambda name: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 2, 3, 4])  # noqa: E731
    graph = helper.make_graph(nodes, "g", [value(name) for name in inputs], [value(name) for name in outputs],
                              [onnx.numpy_helper.from_array(array, name) for name, array in initializers])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)])


def test_a_model_of_two_nodes_and_an_initializer(random):
    q, k, v = (random.standard_normal((2, 2, 3, 4)).astype(np.float32) for _ in range(3))
    first, second = helper.make_node("Attention", ["Q", "K", "V"], ["X"]), helper.make_node("Attention", ["X", "K", "X"], ["Y"])
    outputs = mha.onnx.run_model(model_of([first, second], ["Q", "V"], ["Y", "X"], [("K", k)]), [q, v])
    x = run({"Q": q, "K": k, "V": v})[0]
    np.testing.assert_array_equal(outputs.X, x)
    np.testing.assert_array_equal(outputs["Y"], run({"Q": x, "K": k, "V": x})[0])


def test_devices():
    assert mha.onnx.supports_device("CPU") and mha.onnx.supports_device("CPU:0")
    assert not any(mha.onnx.supports_device(name) for name in ("CUDA", "TPU", "", "CPU:x"))


@pytest.mark.parametrize("node, device, why", [
    (helper.make_node("Relu", ["Q"], ["Y"]), "CPU", "ai.onnx.Relu is not Attention"),
    (helper.make_node("Attention", ["Q", "K", "V"], ["Y"], domain="com.microsoft", num_heads=1), "CPU", "com.microsoft.Attention"),
    (helper.make_node("Attention", ["Q", "K", "V"], ["Y", "", "", "S"]), "CPU", "mode 0: raw scores"),
    (helper.make_node("Attention", ["Q", "K", "V"], ["Y"]), "CUDA", "device CUDA"),
])
def test_what_it_is_not_supposed_to_do(node, device, why):
    from onnx.backend.test.runner import BackendIsNotSupposedToImplementIt

    with pytest.raises(BackendIsNotSupposedToImplementIt, match=why):
        mha.onnx.run_node(node, [], device)


def test_an_opset_before_attention_is_refused():
    model = model_of([helper.make_node("Attention", ["Q", "K", "V"], ["Y"])], ["Q", "K", "V"], ["Y"])
    assert mha.onnx.is_compatible(model)
    assert not mha.onnx.is_compatible(model, "CUDA")
    with pytest.raises(unittest.SkipTest, match="opset 22 is not among the versions 23, 24, 25"):
        mha.onnx.run_node(model.graph.node[0], [], opset_version=22)


@pytest.mark.parametrize("change, why", [
    ({"K": np.zeros((1, 1, 5, 4), np.float32)}, "Q has batch 2, K has 1"),
    ({"V": np.zeros((2, 1, 4, 6), np.float32)}, "K has length 5, V has 4"),
    ({"V": np.zeros((2, 2, 5, 6), np.float32)}, "K has heads 1, V has 2"),
    ({"K": np.zeros((2, 1, 5, 4), np.float64)}, "Q is float32, K is float64"),
    ({"K": np.zeros((2, 5, 4), np.float32)}, "Q, K and V have 4, 3, 4 axes"),
    ({"Q": np.zeros((2, 3, 3, 4), np.float32), "K": np.zeros((2, 2, 5, 4), np.float32), "V": np.zeros((2, 2, 5, 4), np.float32)}, "heads"),
    ({"nonpad_kv_seqlen": np.array([5, 6])}, r"nonpad_kv_seqlen\[1\] is 6, must be 0 to 5"),
    ({"nonpad_kv_seqlen": np.array([-1, 5])}, r"nonpad_kv_seqlen\[0\] is -1"),
    ({"nonpad_kv_seqlen": np.array([5.0, 2.7])}, "nonpad_kv_seqlen is float64, must be integers"),
    ({"nonpad_kv_seqlen": np.array([5])}, r"nonpad_kv_seqlen has shape \[1\], must be \[2\]"),
    ({"attn_mask": np.zeros((3, 6), np.float32)}, "there are 5 keys"),
    ({"past_key": np.zeros((2, 1, 5, 4), np.float64), "past_value": np.zeros((2, 1, 5, 6), np.float32)}, "past_key is float64"),
])
def test_inputs_that_contradict_each_other(random, change, why):
    inputs = tensors(random) | change
    names = [name if name in inputs else "" for name in ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")]
    with pytest.raises(ValueError, match=why):
        mha.onnx.run_node(helper.make_node("Attention", names, ["Y"]), inputs)


def test_windows_and_counts_that_cannot_be(random):
    inputs = tensors(random)
    with pytest.raises(ValueError, match="left_window_size is -2"):
        run(inputs, left_window_size=-2)
    node = helper.make_node("Attention", ["Q", "K", "V"], ["Y"])
    with pytest.raises(ValueError, match="2 inputs are given, must be 3: Q, K, V"):
        mha.onnx.run_node(node, [inputs["Q"], inputs["K"]])
    with pytest.raises(ValueError, match="must be Q, K, V"):
        mha.onnx.run_node(node, {"Q": inputs["Q"]})
