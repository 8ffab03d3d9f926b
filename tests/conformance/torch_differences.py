"""Where PyTorch's own tests fail with this library in the place of torch's function, and why: one entry a reason. Used by torch_suite.py,
which fails for any other difference, and for an entry without one. docs/compat.md says the same for people."""

import dataclasses
import itertools

VERSION = "2.13.0"  # of torch, with whose tests all of this was seen


@dataclasses.dataclass
class Difference:
    reason: str
    tests: tuple  # how the tests begin: class.name
    message: str = ""  # what their error says


_SDPA = "TestTransformersCPU.test_scaled_dot_product_attention_batch_size"
_MASKED = ("3D_input_dim_2D", "3D_input_dim_3D", "4D_input_dim_2D", "4D_input_dim_4D")

DIFFERENCES = [
    Difference(
        "errors are ValueError (shapes) and TypeError (dtypes), as Python has them; torch's are RuntimeError",
        ("TestSDPAFailureModesCPU.test_invalid_inputs_1_dimensional_inputs", "TestSDPAFailureModesCPU.test_invalid_inputs_different_datatypes"),
        "Error: ",
    ),
    Difference(
        "attn_mask and is_causal together are both obeyed; torch refuses them",
        tuple(f"{_SDPA}_{batch}_{mask}_causal_attn_mask" for batch, mask in itertools.product((1, 5), _MASKED)),
        "RuntimeError not raised",
    ),
    Difference(
        "which weights dropout drops is a function of a seed (drawn from torch's generator) and the position, not torch's sequence",
        tuple(f"{_SDPA}_{batch}_{dim}D_input_dim_no_attn_mask_dropout_p_{p}" for batch, dim, p in itertools.product((1, 5), (3, 4), ("0_2", "0_5"))) +
        tuple(f"{_SDPA}_1_{mask}_attn_mask_dropout_p_{p}" for mask, p in itertools.product(_MASKED, ("0_2", "0_5"))) +
        tuple(f"{_SDPA}_5_3D_input_dim_2D_attn_mask_dropout_p_{p}" for p in ("0_2", "0_5")),
        "Tensor-likes are not close",
    ),
]
