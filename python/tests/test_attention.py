"""scaled_dot_product_attention on NumPy arrays: every option against the float64 oracle, and torch's rules of shapes."""

import itertools

import numpy as np
import oracle
import pytest

import mha

sdpa = mha.scaled_dot_product_attention


def problem(random, lead=(2, 3), q_len=7, kv_len=9, head_dim=8, value_dim=5, dtype=np.float32, kv_lead=None):
    kv_lead = lead if kv_lead is None else kv_lead
    shapes = (*lead, q_len, head_dim), (*kv_lead, kv_len, head_dim), (*kv_lead, kv_len, value_dim)
    return [random.standard_normal(shape).astype(dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (2, 2, 3), (2, 1, 2, 3)])
def test_every_rank_and_dtype(random, lead, dtype):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    q, k, v = problem(random, lead, dtype=dtype)
    out = sdpa(q, k, v)
    assert isinstance(out, np.ndarray) and out.dtype == q.dtype
    oracle.check(out, oracle.attend(q, k, v)[0], v, out.dtype, 8)
