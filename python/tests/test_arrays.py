"""Arrays at the border: whose they are, where they lie, how long they live, and calls from many threads, which release the GIL."""

import gc
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import oracle
import pytest

import mha

sdpa = mha.scaled_dot_product_attention


def problem(random, lead=(2, 3), length=16, dim=8):
    return [random.standard_normal((*lead, length, dim)).astype(np.float32) for _ in range(3)]


class Foreign:
    """An array of a framework unknown to us: DLPack is all it has."""

    def __init__(self, array, device=(1, 0)):
        self.array, self.device = array, device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)


class OldForeign(Foreign):
    """As producers before DLPack 1.0 have it."""

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()


@pytest.mark.parametrize("kind", [Foreign, OldForeign])
def test_anything_with_dlpack(random, kind):
    q, k, v = problem(random)
    out = sdpa(kind(q), kind(k.swapaxes(-1, -2).copy().swapaxes(-1, -2)), kind(v))
    assert isinstance(out, np.ndarray) and np.array_equal(out, sdpa(q, k, v))
    written = np.empty_like(q)
    assert isinstance(sdpa(q, k, v, out=Foreign(written)), Foreign) and np.array_equal(written, out)


def test_kinds_may_be_mixed(random):
    q, k, v = problem(random)
    assert np.array_equal(sdpa(q, Foreign(k), v, Foreign(np.ones((16, 16), bool))), sdpa(q, k, v))


@pytest.mark.parametrize("device", [(2, 0), (14, 1)])
def test_memory_that_is_not_the_cpus_is_refused(random, device):
    q, k, v = problem(random)

    class Elsewhere(Foreign):
        def __dlpack__(self, **options):
            raise AssertionError("asked for its memory")

    with pytest.raises(ValueError, match=f"key is in the memory of DLPack device type {device[0]}, must be in CPU memory"):
        sdpa(q, Elsewhere(k, device), v)


def test_a_producer_that_fails_is_a_clear_error(random):
    q, k, v = problem(random)

    class Broken(Foreign):
        def __dlpack__(self, **options):
            raise BufferError("no")

    with pytest.raises(TypeError, match="value is a .*Broken that cannot be read"):
        sdpa(q, k, Broken(v))


def test_read_only_inputs_are_fine_and_stay_as_they_are(random):
    arrays = problem(random)
    copies = [array.copy() for array in arrays]
    for array in arrays:
        array.flags.writeable = False
    out = sdpa(*arrays)
    assert all(np.array_equal(array, copy) for array, copy in zip(arrays, copies))
    assert np.array_equal(out, sdpa(*copies)) and out.flags.writeable


def test_an_address_between_elements_is_refused(random):
    q, k, v = problem(random)
    odd = np.frombuffer(bytearray(q.nbytes + 1), np.uint8)[1:].view(np.float32).reshape(q.shape)
    assert not odd.flags.aligned
    with pytest.raises((ValueError, TypeError), match="query"):
        sdpa(odd, k, v)


def test_fields_of_records_are_arrays_with_strides(random):
    q, k, v = problem(random)
    records = np.zeros(q.shape, [("a", np.float32), ("b", np.float32)])
    records["b"] = q
    assert np.array_equal(sdpa(records["b"], k, v), sdpa(q, k, v))
    packed = np.zeros(q.shape, [("a", np.int8), ("b", np.float32)])
    with pytest.raises((ValueError, TypeError), match="query"):  # steps of 5 bytes
        sdpa(packed["b"], k, v)


def test_any_byte_but_zero_is_true(random):
    q, k, v = problem(random)
    bytes_ = random.integers(0, 256, (16, 16)).astype(np.uint8) * (random.random((16, 16)) < 0.5)
    assert np.array_equal(sdpa(q, k, v, bytes_.astype(np.uint8).view(bool)), sdpa(q, k, v, bytes_ != 0))


def test_bf16_wants_ml_dtypes_and_keeps_its_bits(random):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    q, k, v = (array.astype(bfloat16) for array in problem(random))
    out = sdpa(q[..., ::-1], k[..., ::-1], v)
    assert out.dtype == bfloat16
    exact = oracle.attend(q, k, v)[0]
    oracle.check(out, exact, v, out.dtype, 8)
    written = np.empty(out.shape, bfloat16)
    assert sdpa(q[..., ::-1], k[..., ::-1], v, out=written) is written and np.array_equal(written.view(np.uint16), out.view(np.uint16))


class TestSizesBeyondMemory:
    def test_of_the_output(self, random):
        q, k, v = problem(random)
        with pytest.raises(MemoryError):
            sdpa(np.broadcast_to(q[..., :1, :], (2, 3, 2**46, 8)), k, v)

    def test_of_the_weights(self, random):
        q, k, v = problem(random, lead=(1,), length=1)
        tall = lambda array: np.broadcast_to(array, (1, 2**24, 8))
        with pytest.raises(MemoryError):
            sdpa(tall(q), tall(k), np.broadcast_to(v[..., :0], (1, 2**24, 0)), return_weights=True)


class TestLifetime:
    def test_no_reference_is_left(self, random):
        q, k, v = problem(random)
        mask = np.ones((16, 16), bool)
        count = lambda: [sys.getrefcount(array) for array in (q, k, v, mask)]
        sdpa(q, k, v, mask)
        before = count()
        for _ in range(50):
            sdpa(q, k, v, mask, return_lse=True)
            with pytest.raises(TypeError):
                sdpa(q, k, None, mask)
        gc.collect()
        assert count() == before

    def test_arrays_freed_while_in_use(self, random):
        """The call alone holds them, while another thread takes and fills whatever memory becomes free."""
        expected = sdpa(*problem(np.random.default_rng(1), (1, 4), 600, 64))
        box, results = problem(np.random.default_rng(1), (1, 4), 600, 64), []

        def call():
            results.append(sdpa(box.pop(0), box.pop(0), box.pop(0)))

        thread = threading.Thread(target=call)
        thread.start()
        while thread.is_alive():
            np.full((1, 4, 600, 64), np.nan, np.float32)
            gc.collect()
        thread.join()
        assert not box and np.array_equal(results[0], expected)

    def test_memory_cannot_be_resized_while_in_use(self, random):
        """The owner of the memory refuses, because the call has it exported."""
        length, dim = 3000, 64
        memory = bytearray(8 * length * dim * 4)
        refused = []

        def shrink():
            while not done:
                try:
                    memory.clear()
                    refused.append(False)
                except BufferError:
                    refused.append(True)
                time.sleep(0.001)

        done = False
        thread = threading.Thread(target=shrink)
        q = np.frombuffer(memory, np.float32).reshape(1, 8, length, dim)
        thread.start()
        sdpa(q, q, q)
        done = True
        thread.join()
        assert refused and all(refused)


class TestThreads:
    def test_other_python_threads_run_meanwhile(self, random):
        q, k, v = problem(random, (1, 8), 3000, 64)
        done, stamps = False, []

        def tick():
            while not done:
                stamps.append(time.perf_counter())
                time.sleep(0.001)

        thread = threading.Thread(target=tick)
        thread.start()
        began = time.perf_counter()
        sdpa(q, k, v)
        ended = time.perf_counter()
        done = True
        thread.join()
        meanwhile = [stamp for stamp in stamps if began + 0.01 < stamp < ended - 0.01]
        assert ended - began > 0.05, "too short to see anything"
        assert len(meanwhile) >= 5

    def test_many_at_once_give_the_bits_of_one(self, random):
        problems = [problem(random, (1, 4), length, dim) for length, dim in ((1, 8), (17, 64), (300, 32), (128, 80))]
        expected = [sdpa(*one, is_causal=True) for one in problems]
        faults = []

        def work(start):
            for i in range(40):
                at = (start + i) % len(problems)
                options = {"num_threads": 1} if i % 3 == 0 else {}
                if not np.array_equal(sdpa(*problems[at], is_causal=True, **options), expected[at]):
                    faults.append(at)

        threads = [threading.Thread(target=work, args=(start,)) for start in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not faults


class TestInterruption:
    @pytest.mark.parametrize("dtype, lead", [("float32", (1, 8)), ("float64", (1, 8)), ("float32", (60, 1, 8))])
    def test_ctrl_c(self, dtype, lead):
        """SIGINT to a process within a call that would take minutes: KeyboardInterrupt at once, and the next call is right."""
        length = 3000 if len(lead) > 2 else 60000
        program = textwrap.dedent(f"""
            import numpy as np, mha
            q = np.broadcast_to(np.ones((1, 64), "{dtype}"), (*{lead}, {length}, 64))
            out = np.empty(q.shape, q.dtype)
            small = [np.random.default_rng(0).standard_normal((2, 3, 9, 8)).astype("f4") for _ in range(3)]
            expected = mha.scaled_dot_product_attention(*small)
            print("ready", flush=True)
            try:
                mha.scaled_dot_product_attention(q, q, q, out=out)
                print("finished")
            except KeyboardInterrupt:
                print("interrupted", np.array_equal(mha.scaled_dot_product_attention(*small), expected))
            """)
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "ready\n"
            time.sleep(0.4)
            sent = time.perf_counter()
            process.send_signal(signal.SIGINT)
            try:
                said = process.communicate(timeout=30)[0]
            finally:
                process.kill()
            assert said == "interrupted True\n"
            assert time.perf_counter() - sent < 5

    def test_a_handler_that_raises_nothing_stops_nothing_and_may_compute(self, random):
        q, k, v = problem(random, (1, 8), 3000, 64)
        small = problem(random)
        expected, once, seen = sdpa(*small), sdpa(q, k, v), []
        handler = signal.signal(signal.SIGALRM, lambda *_: seen.append(np.array_equal(sdpa(*small), expected)))
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.02, 0.05)
            again = sdpa(q, k, v)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, handler)
        assert seen and all(seen) and np.array_equal(again, once)


class TestJax:
    def test_arrays(self, random):
        jax = pytest.importorskip("jax")
        for dtype in ("float32", "float16", "bfloat16"):
            q, k, v = (jax.numpy.asarray(array, dtype=dtype) for array in problem(random))
            out, lse, *_ = sdpa(q, k, v, is_causal=True, return_lse=True)
            assert isinstance(out, jax.Array) and out.dtype == q.dtype and isinstance(lse, jax.Array)
            exact = oracle.attend(q, k, v, seen=oracle.causal(16, 16))
            oracle.check(np.asarray(out, np.float64), exact[0], v, dtype, 8)

    def test_immutable_output_is_refused(self, random):
        jax = pytest.importorskip("jax")
        q, k, v = problem(random)
        with pytest.raises(ValueError, match="out is a JAX array"):
            sdpa(q, k, v, out=jax.numpy.zeros((2, 3, 16, 8)))

    def test_traced_arrays_are_refused(self, random):
        jax = pytest.importorskip("jax")
        with pytest.raises(TypeError):
            jax.jit(sdpa)(*problem(random))
