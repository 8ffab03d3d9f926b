"""Beside torch the package computes on torch's threads (libgomp): the same bits, no threads of its own, and whatever forks, interrupts or
nests is still right. In processes of their own, since torch cannot be unloaded.

Wants torch (./test --full)."""

import signal
import subprocess
import sys
import time

import pytest

import mha

pytest.importorskip("torch")
if mha.max_threads() < 2:
    pytest.skip("this process may use one core only: there is no pool", allow_module_level=True)

SETUP = """
import hashlib, os, sys, threading
import numpy as np
{first}
import mha
random = np.random.default_rng(0)
q, k, v = (random.standard_normal((2, 8, 300, 64)).astype("f4") for _ in range(3))
def attend(**options):
    return mha.scaled_dot_product_attention(q, k, v, is_causal=True, **options).tobytes()
def threads():
    return len(os.listdir("/proc/self/task"))
"""
TORCH = "import torch; torch.set_num_threads(2); torch.randn(999, 999) @ torch.randn(999, 999)"


def start(program, first=TORCH):
    return subprocess.Popen([sys.executable, "-c", SETUP.format(first=first) + program], stdout=subprocess.PIPE, text=True)


def said(program, first=TORCH):
    process = start(program, first)
    try:
        text = process.communicate(timeout=60)[0]
    finally:
        process.kill()
    assert process.returncode == 0
    return text.split()


def test_no_threads_of_its_own_and_the_same_bits():
    program = "before = threads(); out = attend(num_threads=2); print(threads() - before, hashlib.sha256(out).hexdigest())"
    own = said(program, first="")
    shared = said(program)
    assert int(own[0]) > 0 and shared[0] == "0"
    assert own[1] == shared[1]


def test_a_forked_child_computes():
    program = """
expected = attend()
child = os.fork()
if child == 0:
    os._exit(0 if attend() == expected else 1)
print(os.waitpid(child, 0)[1], attend() == expected)
"""
    assert said(program) == ["0", "True"]


def test_many_python_threads():
    program = """
expected, found = attend(), []
calls = [threading.Thread(target=lambda: found.extend(attend(num_threads=1 + i % 2) for i in range(6))) for _ in range(6)]
for call in calls: call.start()
for call in calls: call.join()
print(len(found), all(out == expected for out in found))
"""
    assert said(program) == ["36", "True"]


def test_a_signal_handler_may_compute_and_ctrl_c_ends_a_long_call():
    program = """
import signal
expected, seen = attend(), []
signal.signal(signal.SIGALRM, lambda *_: seen.append(attend() == expected))
signal.setitimer(signal.ITIMER_REAL, 0.2)
long = np.broadcast_to(np.ones((1, 64), "f4"), (1, 8, 60000, 64))
print("ready", flush=True)
try:
    mha.scaled_dot_product_attention(long, long, long)
    print("finished")
except KeyboardInterrupt:
    print("interrupted", seen == [True], attend() == expected)
"""
    process = start(program)
    try:
        assert process.stdout.readline() == "ready\n"
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30)[0] == "interrupted True True\n"
    finally:
        process.kill()
