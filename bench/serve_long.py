"""How long `mha serve` takes over a text of 100,000 tokens: bench/serve_long.py MHA [TOKENS [FILE]]. Writes a capture file of random
queries and keys (two causal heads of 64), asks for tiles of its map from near to far, a row, measures and links, and prints the seconds of each.
Wants numpy and safetensors (build/venv has them)."""

import http.client
import json
import math
import subprocess
import sys
import tempfile
import time

import numpy as np
from safetensors.numpy import save_file

HEADS, HEAD_DIM = 2, 64


def write_capture(path, tokens):
    """For keys of independent normal numbers the softmax denominator of n keys is close to n exp(|q|^2 / (2 head_dim)): rows sum to some 1."""
    random = np.random.default_rng(0)
    q, k = (random.standard_normal((1, HEADS, tokens, HEAD_DIM), dtype=np.float32) for _ in range(2))
    lse = np.log(np.arange(1, tokens + 1)) + (q**2).sum(-1) / (2 * HEAD_DIM)
    layer = {"name": "random", "heads": HEADS, "kv_heads": HEADS, "head_dim": HEAD_DIM, "q_len": tokens, "kv_len": tokens,
             "scale": 1 / math.sqrt(HEAD_DIM), "softcap": None, "causal": True, "window": None, "align": "top_left", "allowed": None,
             "bias": None, "sinks": None, "queries": "tokens", "keys": "tokens"}
    arrays = {"layers.0.q": q, "layers.0.k": k, "layers.0.lse": lse.astype(np.float32), "tokens": np.arange(tokens)[None]}
    save_file(arrays, path, {"format": "mha.capture", "version": "1", "layers": json.dumps([layer])})


def ask(port, target):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    began = time.monotonic()
    connection.request("GET", target)
    answer = connection.getresponse()
    body = answer.read()
    said = "" if answer.status == 200 else f"  {answer.status} {body!r}"
    print(f"{time.monotonic() - began:8.3f} s {len(body):10} bytes  {target}{said}", flush=True)


def main():
    mha = sys.argv[1]
    tokens = int(sys.argv[2]) if len(sys.argv) > 2 else 100_000
    with tempfile.TemporaryDirectory() as folder:
        path = sys.argv[3] if len(sys.argv) > 3 else folder + "/long.safetensors"
        write_capture(path, tokens)
        with subprocess.Popen([mha, "serve", "--port", "0", "--tensors", path], stdout=subprocess.PIPE) as server:
            port = int(server.stdout.readline().decode().split(":")[2].split("/")[0])
            ask(port, "/api/runs/t0")
            for side in (512, 4096, 32768):
                lo = max(0, tokens // 2 - side // 2)
                hi = min(tokens, lo + side)
                ask(port, f"/api/runs/t0/map?layer=0&head=1&queries={lo}:{hi}&keys={lo}:{hi}&rows=512&columns=512")
            ask(port, "/api/runs/t0/map?layer=0&head=1&rows=512&columns=512")
            ask(port, f"/api/runs/t0/row?unit=piece&index={tokens // 2}")
            ask(port, "/api/runs/t0/measures?unit=piece")
            ask(port, "/api/runs/t0/links?layer=0&head=0&top=300&unit=piece")
            server.terminate()


main()
