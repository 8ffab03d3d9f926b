"""bench/hf: Hugging Face models on attn_implementation="mha" against "sdpa", the same weights, in one process, in turn; prints
theirs / ours for whole forward passes and for the attention of one layer alone. Started by the script bench/hf. The way of measuring is
alternate.py's."""

import argparse
import json
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
import transformers

import mha.transformers
from alternate import Side, compare
from machine import cpu_model, take_threads

LLAMA = {"vocab_size": 1000, "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 4, "num_attention_heads": 16,
         "num_key_value_heads": 4, "head_dim": 64, "max_position_embeddings": 8192}
MODELS = {  # name -> (class of model, class of config, its arguments)
    "bert": ("BertModel", "BertConfig", {"vocab_size": 1000, "num_hidden_layers": 4, "max_position_embeddings": 4096}),
    "llama": ("LlamaModel", "LlamaConfig", LLAMA),
    "window": ("MistralModel", "MistralConfig", {**LLAMA, "sliding_window": 256}),
    "minilm": None,
}
CASES = [  # model, batch, tokens, whether the batch is padded
    ("minilm", 1, 512, False), ("minilm", 4, 512, True), ("bert", 1, 512, False), ("bert", 4, 512, True), ("bert", 1, 2048, False),
    ("llama", 1, 512, False), ("llama", 4, 512, True), ("llama", 1, 2048, False), ("window", 1, 2048, False),
]
QUICK = {("minilm", 1, 512, False), ("llama", 1, 512, False), ("llama", 1, 2048, False)}
LIMIT = 1e-5  # relative distance (Frobenius) of the results


def arguments():
    parser = argparse.ArgumentParser(prog="bench/hf", description='Hugging Face models on "mha" against "sdpa", in turn: theirs / ours.')
    parser.add_argument("models", nargs="*", metavar="model", help=f"which: {' '.join(MODELS)} (all)")
    parser.add_argument("--threads", type=int, default=1, help="of both sides; with 1, thread CPU time is the clock (1)")
    parser.add_argument("--rounds", type=int, default=7, help="how often both sides take turns (7)")
    parser.add_argument("--quick", action="store_true", help="a short selection of rows")
    parser.add_argument("--json", metavar="FILE", help="write all figures there too")
    parser.add_argument("--model", required=True, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    unknown = [name for name in chosen.models if name not in MODELS]
    if unknown:
        parser.error(f"no model {unknown[0]}: there are {', '.join(MODELS)}")
    if chosen.rounds < 1:
        parser.error("--rounds must be at least 1")
    take_threads(parser, chosen.threads)
    return chosen


def pair_of(name, folder):
    """The same model twice, on "sdpa" and on "mha", with one set of weights."""
    if MODELS[name] is None:
        return [transformers.AutoModel.from_pretrained(folder, attn_implementation=kind).eval() for kind in ("sdpa", "mha")]
    model_class, config_class, options = MODELS[name]
    made = []
    for kind in ("sdpa", "mha"):
        config = getattr(transformers, config_class)(**options)
        made.append(getattr(transformers, model_class)._from_config(config, attn_implementation=kind).eval())
    made[1].load_state_dict(made[0].state_dict(), assign=True)
    return made


def inputs_of(batch, tokens, padded):
    """Random tokens; padded: entry i lacks i eighths of its tokens, on the right."""
    generator = torch.Generator().manual_seed(20261130)
    mask = torch.ones(batch, tokens, dtype=torch.long)
    for entry in range(batch if padded else 0):
        mask[entry, tokens - entry * tokens // 8:] = 0
    return {"input_ids": torch.randint(5, 1000, (batch, tokens), generator=generator), "attention_mask": mask}


def side(name, call, seen):
    """`call` returns a tensor; `seen` is where it may be compared."""
    last = [None]

    def run():
        with torch.inference_mode():
            last[0] = call()

    return Side(name, name, [run], lambda: last[0][seen].float().numpy())


def attention_calls(models, inputs):
    """The attention of the first layer of each model, with the arguments it gets there."""
    calls = []
    for model in models:
        interface = transformers.AttentionInterface()
        name, taken = model.config._attn_implementation, []
        function = interface[name]

        def take(*args, function=function, taken=taken, **options):
            taken.append((args, options))
            return function(*args, **options)

        transformers.AttentionInterface.register(name, take)
        with torch.inference_mode():
            model(**inputs)
        transformers.AttentionInterface.register(name, function)
        args, options = taken[0]
        calls.append(lambda function=function, args=args, options=options: function(*args, **options)[0])
    return calls


def row_of(label, sides, chosen):
    outcome = compare(sides[1], sides[:1], chosen.rounds, chosen.threads, lambda: 0.0, seconds=0.1)
    result = outcome.comparisons[0]
    low, median, high = (float(x) for x in result.quartiles())
    row = {"case": label, "ms": float(np.median(outcome.seconds())) * 1e3, "ratio": [low, median, high], "clock": result.clock,
           "error": result.error}
    print(f"{label:<44} {row['ms']:9.2f}{'w' if result.clock == 'wall' else ' '} {median:6.2f} [{low:.2f} {high:.2f}]  "
          f"error {result.error:.0e}{'' if result.error <= LIMIT else '  DISAGREES'}{'  <' if median < 1 else ''}", flush=True)
    return row


def rows_of(case, models, chosen):
    name, batch, tokens, padded = case
    inputs = inputs_of(batch, tokens, padded)
    label = f"{name} {batch} x {tokens}{', padded' if padded else ''}"
    seen = inputs["attention_mask"].bool()
    whole = [side(kind, lambda model=model: model(**inputs)[0], seen) for kind, model in zip(("sdpa", "mha"), models)]
    alone = [side(kind, call, seen) for kind, call in zip(("sdpa", "mha"), attention_calls(models, inputs))]
    return [row_of(label, whole, chosen), row_of("  attention of one layer", alone, chosen)]


def main():
    chosen = arguments()
    torch.set_num_threads(chosen.threads)
    transformers.utils.logging.disable_progress_bar()
    print(f"CPU      {cpu_model()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start; mha uses {mha.current_isa()}")
    print(f"sides    transformers {transformers.__version__}, torch {torch.__version__}, f32, {chosen.threads} threads, "
          f"{chosen.rounds} rounds in turn")
    print(f"\n{'forward pass':<44} {'ms':>9}  sdpa / mha, median [quartiles]: above 1 mha is faster; w: wall time", flush=True)
    rows, models, made = [], None, None
    for case in CASES:
        if (chosen.models and case[0] not in chosen.models) or (chosen.quick and case not in QUICK):
            continue
        if made != case[0]:
            models, made = pair_of(case[0], chosen.model), case[0]
        rows += rows_of(case, models, chosen)
    lost = [row["case"] for row in rows if row["ratio"][1] < 1]
    wrong = [row["case"] for row in rows if row["error"] > LIMIT]
    print(f"\n{len(rows)} rows, {len(lost)} lost, {len(wrong)} do not agree")
    if chosen.json:
        with open(chosen.json, "w", encoding="utf-8") as file:
            json.dump({"cpu": cpu_model(), "threads": chosen.threads, "rounds": chosen.rounds, "transformers": transformers.__version__,
                       "torch": torch.__version__, "rows": rows}, file, indent=1)
    sys.exit(1 if wrong else 0)


main()
