"""Small random models of Hugging Face, with heads that have something to say: what test_transformers.py and test_capture.py look at."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"

import torch  # noqa: E402
import transformers  # noqa: E402

VOCABULARY = 100
SIZES = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
GROUPED = {"num_key_value_heads": 2, "head_dim": 16, **TOKENS}
LAYERS = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 5}

# name -> (class of model, class of config, its arguments)
DECODERS = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, **TOKENS}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", {**SIZES, **GROUPED}),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {**SIZES, **GROUPED, "use_sliding_window": True, **LAYERS}),
    "mistral": ("MistralForCausalLM", "MistralConfig", {**SIZES, **GROUPED, "sliding_window": 5}),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", {**SIZES, **GROUPED, "num_key_value_heads": 1}),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", {**SIZES, **GROUPED, "attn_logit_softcapping": 3.0, **LAYERS}),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", {**SIZES, **GROUPED, **LAYERS}),
    "gpt_oss": ("GptOssForCausalLM", "GptOssConfig", {**SIZES, **GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2, **LAYERS}),
}
ENCODERS = {
    "bert": ("BertModel", "BertConfig", SIZES),
    "modernbert": ("ModernBertModel", "ModernBertConfig", {**SIZES, **TOKENS, "local_attention": 6, "global_attn_every_n_layers": 2,
                                                           "cls_token_id": 1, "sep_token_id": 2}),
}
PAIRS = {  # encoder and decoder
    "bart": ("BartModel", "BartConfig", {
        "vocab_size": VOCABULARY, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "decoder_start_token_id": 2, "forced_eos_token_id": None,
        "init_std": 0.3, **TOKENS}),
    "t5": ("T5Model", "T5Config", {"vocab_size": VOCABULARY, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4,
                                   "decoder_start_token_id": 0}),
}


def build(kind, **more):
    """A small random model of the kind, with heads that have something to say, in eval mode, on "eager"."""
    model_class, config_class, arguments = kind
    config = getattr(transformers, config_class)(**{"initializer_range": 0.3, **arguments, **more})
    model = getattr(transformers, model_class)._from_config(config, attn_implementation="eager").eval()
    for name, parameter in model.named_parameters():
        if name.endswith("sinks"):
            torch.nn.init.normal_(parameter)
    return model


def batch(length=19):
    """Three texts: padded on the left, padded on the right, whole. (ids, mask)."""
    ids = torch.randint(3, VOCABULARY, (3, length))
    mask = torch.ones_like(ids)
    mask[0, :4] = 0
    mask[1, -3:] = 0
    return ids, mask
