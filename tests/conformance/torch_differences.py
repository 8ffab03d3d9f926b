"""Where PyTorch's own tests fail with this library in the place of torch's function, and why: one entry a reason. Used by torch_suite.py,
which fails for any other difference, and for an entry without one. docs/compat.md says the same for people."""

import dataclasses
import itertools

from torch_swap import ERRORS, NAN_ROWS, ONE_MASK, TRUST

VERSION = "2.13.0"  # of torch, with whose tests all of this was seen


@dataclasses.dataclass
class Difference:
    reason: str
    tests: tuple  # how the tests begin: class.name
    message: str  # what their error says
    adapt: tuple = ()  # with these of torch's ways imitated (torch_swap.py) they pass


_SDPA = "TestTransformersCPU.test_scaled_dot_product_attention_batch_size"
_MASKED = ("3D_input_dim_2D", "3D_input_dim_3D", "4D_input_dim_2D", "4D_input_dim_4D")

_DROPPED = ("0_2", "0_5")  # probabilities, as the tests' names have them

DIFFERENCES = [
    Difference(
        "errors are ValueError (shapes) and TypeError (dtypes), as Python has them; torch's are RuntimeError and AssertionError",
        ("TestSDPAFailureModesCPU.test_invalid_inputs_1_dimensional_inputs",
         "TestSDPAFailureModesCPU.test_invalid_inputs_different_datatypes",
         "TestMultiheadAttentionNN.test_multihead_attn_invalid_shape",
         "TestMultiheadAttentionNN.test_multihead_attn_fast_path_invalid_shape"),
        "Error: ",
        (ERRORS,),
    ),
    Difference(
        "is_causal of MultiheadAttention is a hint only: attn_mask decides, and is refused where its shape is wrong; torch does not look "
        "at it where no weights are wanted (and here too, errors are ValueError)",
        ("TestTransformersCPU.test_train_with_is_causal_cpu",),
        "ValueError: is_causal is a hint",
        (ERRORS, TRUST),
    ),
    Difference(
        "attn_mask and is_causal together are both obeyed; torch refuses them",
        tuple(f"{_SDPA}_{batch}_{mask}_causal_attn_mask_dropout_p_0_0" for batch, mask in itertools.product((1, 5), _MASKED)),
        "RuntimeError not raised",
        (ONE_MASK,),
    ),
    Difference(
        "attn_mask and is_causal together are both obeyed; torch refuses them (dropout, which follows, differs as well: see below)",
        tuple(f"{_SDPA}_{batch}_{mask}_causal_attn_mask_dropout_p_{p}" for batch, mask, p in itertools.product((1, 5), _MASKED, _DROPPED)),
        "RuntimeError not raised",
    ),
    Difference(
        "a row of MultiheadAttention that may see nothing gives weights of 0 and the output projection's bias; torch's are NaN where "
        "weights are wanted, and not where they are not",
        ("TestMultiheadAttentionNN.test_multihead_attention_average_attn_weights",),
        "nan location mismatch",
        (NAN_ROWS,),
    ),
    Difference(
        "which weights dropout drops is a function of a seed (drawn from torch's generator) and the position, not torch's sequence",
        tuple(f"{_SDPA}_{batch}_{dim}D_input_dim_no_attn_mask_dropout_p_{p}"
              for batch, dim, p in itertools.product((1, 5), (3, 4), _DROPPED)) +
        tuple(f"{_SDPA}_1_{mask}_attn_mask_dropout_p_{p}" for mask, p in itertools.product(_MASKED, _DROPPED)) +
        tuple(f"{_SDPA}_5_3D_input_dim_2D_attn_mask_dropout_p_{p}" for p in _DROPPED),
        "Tensor-likes are not close",
    ),
    Difference(
        "TorchScript compiles the source of torch.nn.functional's functions; what is put in their place here is no TorchScript",
        ("TestTransformersCPU.test_script_encoder_subclass_cpu", "TestTransformersCPU.test_script_mha_in_proj_weight_none_cpu",
         "TestTransformersCPU.test_transformerencoderlayer_subclass"),
        "NotSupportedError: Compiled functions can't take variable number of arguments",
    ),
]
