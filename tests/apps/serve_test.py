"""`mha serve` as browsers, programs and attackers meet it: answers, headers, limits, a signal's end; files of tensors that NumPy wrote;
and an honest client's waiting time beside 200 hostile and slow ones.
"""

import http.client
import json
import multiprocessing
import os
import signal
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time

import numpy as np
from mha_command import MHA, Command, unittest
from safetensors.numpy import save_file

HOSTILE = 200
LONGEST_WAIT = 1.0  # seconds that a request of an honest client may take among them, being asked again (429) included
TEXT = "The man saw the astronomer with a telescope."
HTML = "<script>alert(1)</script> &lt;man&gt; \"the' </style>"


class Server:
    """A running `mha serve` on a free port; ended by SIGTERM."""

    def __init__(self, test, *arguments, path=None):
        environment = test.environment()
        if path:
            environment["PATH"] = path + os.pathsep + os.environ["PATH"]
        self.process = subprocess.Popen([MHA, "serve", "--port", "0", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env=environment)
        self.address = self.process.stdout.readline().decode().strip()
        assert self.address.startswith("http://"), (self.address, self.process.poll())
        self.port = int(self.address.split(":")[2].split("/")[0])
        test.addCleanup(self.end)

    def end(self, by=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(by)
        rest = self.process.communicate(timeout=20)
        return self.process.returncode, *rest

    def ask(self, method, target, body=None, **headers):
        """(status, headers, body)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
        connection.request(method, target, body, headers)
        answer = connection.getresponse()
        found = answer.status, dict(answer.headers), answer.read()
        connection.close()
        return found

    def json(self, method, target, body=None):
        status, _, answer = self.ask(method, target, None if body is None else json.dumps(body))
        assert status == 200, answer
        return json.loads(answer)

    def numbers(self, target):
        status, headers, answer = self.ask("GET", target)
        assert status == 200, answer
        dtype = {"u8": np.uint8, "f16": np.float16, "f32": np.float32}[headers["X-Mha-Dtype"]]
        return np.frombuffer(answer, dtype).reshape([int(n) for n in headers["X-Mha-Shape"].split(",")])

    def raw(self, data=b""):
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        connection.sendall(data)
        return connection


def post(text, **more):
    body = json.dumps({"text": text, **more}).encode()
    head = f"POST /api/runs HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class ServeTest(Command):
    def start(self, *arguments):
        return Server(self, "--model", self.model, *arguments)

    def test_answers_and_headers(self):
        server = self.start()
        self.assertEqual(server.address, f"http://127.0.0.1:{server.port}/")
        status, headers, page = server.ask("GET", "/")
        self.assertEqual((status, headers["Content-Type"]), (200, "text/html; charset=utf-8"))
        policy = headers["Content-Security-Policy"]
        self.assertIn("default-src 'none'", policy)
        nonce = policy.split("script-src 'nonce-")[1].split("'")[0]
        self.assertIn(f'nonce="{nonce}"'.encode(), page)
        self.assertNotIn(nonce, server.ask("GET", "/")[1]["Content-Security-Policy"])
        for target in ("/", "/api/info", "/notices.txt", "/nothing"):
            headers = server.ask("GET", target)[1]
            self.assertEqual((headers["X-Content-Type-Options"], headers["Cache-Control"]), ("nosniff", "no-store"), target)
        run = server.json("POST", "/api/runs", {"text": HTML})
        self.assertEqual(run["text"], HTML)
        weights = server.numbers(f"/api/runs/{run['run']}/weights?layer=1&dtype=f16")
        words = len(run["queries"]["words"])
        self.assertEqual(weights.shape, (4, words, words))
        self.assertTrue(np.allclose(weights.astype(float).sum(-1), 1, atol=words * 2**-11))
        self.assertEqual(server.numbers("/api/usual").shape, (2, 4, 65))

    def test_refuses_others(self):
        server = self.start()
        for headers in ({"Host": "evil.example"}, {"Host": f"evil.example:{server.port}"}, {"Origin": "http://evil.example"},
                        {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"}):
            got, _, body = server.ask("GET", "/api/info", **headers)
            self.assertEqual(got, 403, headers)
            self.assertTrue(json.loads(body)["remedy"])
        self.assertEqual(server.ask("POST", "/api/runs", "{}", **{"Content-Type": "text/plain"})[0], 415)
        self.assertEqual(server.ask("DELETE", "/api/info")[0], 405)
        status, _, body = server.ask("POST", "/api/runs", json.dumps({"text": "a" * (1 << 20)}))
        self.assertEqual((status, "1048576" in json.loads(body)["error"]), (413, True))
        self.assertEqual(server.ask("GET", "/api/info", X_Long="a" * 20000)[0], 431)
        self.assertEqual(server.ask("GET", "/%61pi/info", Sec_Fetch_Site="cross-site")[0], 400)
        self.assertEqual(server.ask("POST", "/api/runs", json.dumps({"text": TEXT}), Content_Type="application/json ; charset=utf-8")[0], 200)
        for nonsense in (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"GET\r\n\r\n", b"\r\n" * 9 + b"nonsense\r\n\r\n"):
            with server.raw(nonsense) as connection:
                self.assertTrue(connection.recv(4096).startswith(b"HTTP/1.1 400"), nonsense)
        self.assertEqual(server.json("GET", "/api/info")["model"]["name"], "tiny")

    def test_head_is_get_without_the_body(self):
        server = self.start()
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        for target in ("/", "/api/info", "/api/usual", "/nothing"):
            status, headers, body = server.ask("GET", target)
            with server.raw(f"HEAD {target} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: close\r\n\r\n".encode()) as raw:
                answer = b"".join(iter(lambda: raw.recv(4096), b""))
            self.assertTrue(answer.startswith(f"HTTP/1.1 {status} ".encode()), target)
            self.assertTrue(answer.endswith(b"\r\n\r\n"), target)
            self.assertIn(f"Content-Length: {len(body)}\r\n".encode(), answer)
            connection.request("HEAD", target)  # and the connection goes on
            self.assertEqual(connection.getresponse().read(), b"")
        connection.close()

    def test_what_is_sent_while_a_request_is_computed_is_the_next_one(self):
        server = self.start()
        request = post("the man saw a telescope " * 2000).replace(b"PORT", str(server.port).encode())
        with server.raw(request + b"G") as raw:
            time.sleep(0.01)
            raw.sendall(b"E")
            time.sleep(0.01)
            raw.sendall(f"T /api/info HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: close\r\n\r\n".encode())
            answers = b"".join(iter(lambda: raw.recv(1 << 16), b""))
        self.assertEqual(answers.count(b"HTTP/1.1 200 OK"), 2, answers[:200])
        self.assertIn(b'"version"', answers)

    def test_a_browser_that_does_not_open_is_told(self):
        folder = os.path.join(self.folder, "bin")
        os.makedirs(folder)
        seen = os.path.join(self.folder, "seen")
        for code, says in ((3, b"--open: xdg-open found no browser, open the address yourself\n"), (0, b"")):
            with open(os.path.join(folder, "xdg-open"), "w", encoding="utf-8") as script:
                script.write(f'#!/bin/sh\necho "$1" > {seen}.part\nmv {seen}.part {seen}\nexit {code}\n')
                os.fchmod(script.fileno(), 0o755)
            server = Server(self, "--model", self.model, "--open", path=folder)
            until = time.monotonic() + 20
            while not os.path.exists(seen) and time.monotonic() < until:
                time.sleep(0.02)
            time.sleep(0.5)  # the script has ended, and was taken leave of
            tasks = f"/proc/{server.process.pid}/task"
            for task in os.listdir(tasks):
                with open(f"{tasks}/{task}/children", encoding="utf-8") as children:
                    self.assertEqual(children.read(), "")
            self.assertEqual(server.end(), (0, says, b""))
            with open(seen, encoding="utf-8") as opened:
                self.assertEqual(opened.read().strip(), server.address)
            os.remove(seen)

    def test_a_token_is_demanded_of_other_machines(self):
        server = Server(self, "--model", self.model, "--host", "0.0.0.0")
        host = server.address.split("/")[2].split(":")[0]
        self.assertNotEqual(host, "0.0.0.0")
        with socket.create_connection((host, server.port), timeout=30) as connection:
            connection.sendall(f"GET /{server.address.split('/')[3]} HTTP/1.1\r\nHost: {host}:{server.port}\r\n\r\n".encode())
            self.assertTrue(connection.recv(4096).startswith(b"HTTP/1.1 303"))
        self.assertEqual(server.ask("GET", "/api/info")[0], 401)
        target = server.address[server.address.index("/?"):]
        status, headers, _ = server.ask("GET", target)
        self.assertEqual((status, headers["Location"]), (303, "/"))
        cookie = headers["Set-Cookie"].split(";")[0]
        self.assertEqual(server.ask("GET", "/api/info", Cookie=cookie)[0], 200)
        self.assertEqual(server.ask("GET", "/api/info", Cookie=cookie[:-1])[0], 401)

    def test_ends_at_a_signal(self):
        for by in (signal.SIGINT, signal.SIGTERM):
            server = self.start()
            with server.raw(b"GET /"):  # an unfinished request does not hold it
                server.json("GET", "/api/info")
                began = time.monotonic()
                self.assertEqual(server.end(by), (0, b"", b""))
                self.assertLess(time.monotonic() - began, 5)

    def test_wrong_options(self):
        server = self.start()
        self.bad("serve", "--port", str(server.port), says=(str(server.port), "taken"))
        self.bad("serve", "--port", "70000", says=("--port", "70000"))
        self.bad("serve", "--host", "nowhere.example", says=("nowhere.example",))
        self.bad("serve", "--tensors", self.model + "/config.json", says=("config.json",))

    def test_an_honest_client_waits_less_than_a_second(self):
        server = self.start()
        ended, turns = multiprocessing.Event(), multiprocessing.Value("l")
        crowd = multiprocessing.Process(target=self._crowd, args=(server, ended, turns))  # of its own: it must not slow this one's clock
        crowd.start()
        time.sleep(0.5)
        waits = []
        try:
            until = time.monotonic() + 4
            while time.monotonic() < until:
                run = self._answered(server, waits, "POST", "/api/runs", {"text": TEXT + str(len(waits))})
                self._answered(server, waits, "GET", f"/api/runs/{run['run']}/measures")
                self._answered(server, waits, "GET", "/api/info")
        finally:
            ended.set()
            crowd.join(timeout=30)
        print(f"\ncounts: {HOSTILE} hostile and slow clients, {turns.value} turns of theirs, {len(waits)} honest requests: median "
              f"{1000 * statistics.median(waits):.0f} ms, longest {1000 * max(waits):.0f} ms")
        self.assertLess(max(waits), LONGEST_WAIT)
        self.assertGreater(turns.value, HOSTILE)  # they did reach it
        self.assertEqual(server.end()[0], 0)

    def _answered(self, server, waits, method, target, body=None):
        """As the page asks: again where the server is busy. Its time goes to `waits`."""
        began = time.monotonic()
        while True:
            status, _, answer = server.ask(method, target, None if body is None else json.dumps(body))
            if status != 429:
                self.assertEqual(status, 200, answer)
                waits.append(time.monotonic() - began)
                return json.loads(answer)
            time.sleep(0.05)

    def _crowd(self, server, ended, turns):
        over = threading.Event()
        works = (self._silent, self._slow_header, self._slow_body, self._floods, self._leaves, self._slow_reader, self._garbage, self._huge,
                 self._asks)
        threads = [threading.Thread(target=self._hostile, args=(works[i % len(works)], server, over, turns)) for i in range(HOSTILE)]
        for thread in threads:
            thread.start()
        ended.wait(60)
        over.set()
        for thread in threads:
            thread.join(timeout=20)

    @staticmethod
    def _hostile(work, server, ended, turns):
        while not ended.is_set():
            try:
                work(server, ended)
                with turns.get_lock():
                    turns.value += 1
            except (OSError, http.client.HTTPException):
                ended.wait(0.05)

    @staticmethod
    def _silent(server, ended):
        with server.raw():
            ended.wait(2)

    @staticmethod
    def _slow_header(server, ended):
        with server.raw(b"GET / HTTP/1.1\r\n") as connection:
            while not ended.wait(0.1):
                connection.sendall(b"X-A: b\r\n")

    @staticmethod
    def _slow_body(server, ended):
        with server.raw(post("x" * 500000)[:300].replace(b"PORT", str(server.port).encode())) as connection:
            while not ended.wait(0.1):
                connection.sendall(b"x")

    @staticmethod
    def _floods(server, ended):
        text = "the man saw a telescope " * 2000 + str(time.monotonic())
        with server.raw(post(text).replace(b"PORT", str(server.port).encode())) as connection:
            connection.recv(1000)

    @staticmethod
    def _leaves(server, ended):
        text = "with a telescope " * 1000 + str(time.monotonic())
        connection = server.raw(post(text).replace(b"PORT", str(server.port).encode()))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()

    @staticmethod
    def _slow_reader(server, ended):
        with server.raw(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode() * 20) as connection:
            while not ended.wait(0.2):
                connection.recv(1)

    @staticmethod
    def _asks(server, ended):
        status, _, run = server.ask("POST", "/api/runs", json.dumps({"text": "the man saw a telescope " * 20}))
        for what in ("effects", "measures", "effects?by=mean") if status == 200 else ():
            server.ask("GET", f"/api/runs/{json.loads(run)['run']}/{what}")

    @staticmethod
    def _garbage(server, ended):
        with server.raw(os.urandom(3000)) as connection:
            connection.recv(1000)
        ended.wait(0.02)

    @staticmethod
    def _huge(server, ended):
        with server.raw(f"POST /api/runs HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Length: 99999999999\r\n\r\n".encode()) as connection:
            for _ in range(50):
                connection.sendall(b"x" * 10000)
            connection.recv(1000)


def softmax(q, k, scale, hidden):
    """float64 weights and lse of [heads, length, dim]; `hidden` True = may not attend."""
    heads, kv_heads = q.shape[0], k.shape[0]
    scores = scale * q.astype(np.float64) @ np.repeat(k, heads // kv_heads, 0).astype(np.float64).swapaxes(1, 2)
    scores = np.where(hidden, -np.inf, scores)
    lse = np.log(np.exp(scores).sum(-1))
    return np.exp(scores - lse[..., None]), lse


class TensorsTest(Command):
    """Files of other programs: written here by NumPy, shown by the server, held against softmax in float64."""

    def setUp(self):
        super().setUp()
        self.path = os.path.join(self.folder, "heads.safetensors")
        self.random = np.random.default_rng(7)

    def layer(self, arrays, index, heads, kv_heads, q_len, kv_len, causal, **said):
        q, k = (self.random.standard_normal((1, h, n, 16), dtype=np.float32) for h, n in ((heads, q_len), (kv_heads, kv_len)))
        hidden = np.triu(np.ones((q_len, kv_len), bool), 1) if causal else np.zeros((q_len, kv_len), bool)
        weights, lse = softmax(q[0], k[0], 0.25, hidden)
        arrays |= {f"layers.{index}.q": q, f"layers.{index}.k": k, f"layers.{index}.lse": lse[None].astype(np.float32)}
        return np.where(hidden, np.nan, weights), {
            "name": f"layer {index}", "heads": heads, "kv_heads": kv_heads, "head_dim": 16, "q_len": q_len, "kv_len": kv_len, "scale": 0.25,
            "softcap": None, "causal": causal, "window": None, "align": "top_left", "allowed": None, "bias": None, "sinks": None, **said}

    def serve(self, arrays, layers, **metadata):
        save_file(arrays, self.path, {"format": "mha.capture", "version": "1", "layers": json.dumps(layers), **metadata})
        return Server(self, "--tensors", self.path)

    def test_encoder_and_decoder_with_grouped_heads(self):
        arrays = {"tokens": np.arange(7)[None], "decoder_tokens": np.arange(5)[None]}
        first, encoder = self.layer(arrays, 0, 4, 4, 7, 7, False, queries="tokens", keys="tokens")
        second, decoder = self.layer(arrays, 1, 6, 2, 5, 5, True, queries="decoder_tokens", keys="decoder_tokens")
        third, cross = self.layer(arrays, 2, 6, 2, 5, 7, False, queries="decoder_tokens", keys="tokens")
        server = self.serve(arrays, [encoder, decoder, cross], texts=json.dumps(["<b>one</b> two"]))
        info = server.json("GET", "/api/info")
        self.assertIsNone(info["model"])
        self.assertEqual(info["tensors"]["file"], "heads.safetensors")
        runs = [entry["run"] for entry in info["tensors"]["runs"]]
        self.assertEqual(len(runs), 3)
        for run, expected in zip(runs, (first, second, third)):
            told = server.json("GET", f"/api/runs/{run}")
            got = server.numbers(f"/api/runs/{run}/weights?layer=0&dtype=f16").astype(float)
            self.assertEqual(np.isnan(got).tolist(), np.isnan(expected).tolist())
            self.assertLess(np.nanmax(np.abs(got - expected)), 2**-11)
            self.assertEqual(told["layers"][0]["heads"], expected.shape[0])
            self.assertEqual(told["keys"] is None, run != runs[2])
            measures = server.json("GET", f"/api/runs/{run}/measures")["values"]
            entropy = -np.nansum(np.where(expected > 0, expected * np.log(np.where(expected > 0, expected, 1)), 0), -1).mean(-1)
            self.assertTrue(np.allclose(measures["entropy"][0], entropy, atol=1e-5))
            self.assertEqual(measures["previous"][0][0] is None, run == runs[2])
        self.assertEqual(server.ask("GET", f"/api/runs/{runs[2]}/row?index=0")[0], 400)
        self.assertEqual(server.ask("GET", f"/api/runs/{runs[0]}/weights?layer=0&kind=norm")[0], 400)
        self.assertEqual(server.ask("POST", "/api/runs", json.dumps({"text": "a"}))[0], 404)

    def test_a_map_of_any_length(self):
        arrays = {}
        length = 3000
        _, said = self.layer(arrays, 0, 1, 1, 4, 4, True, queries=None, keys=None)
        q, k = (self.random.standard_normal((1, 1, length, 16), dtype=np.float32) for _ in range(2))
        rows = np.array([0, 1, 77, 1999, length - 1])
        lse = np.zeros((1, 1, length), np.float32)
        for start in range(0, length, 500):
            scores = 0.25 * q[0, 0, start:start + 500].astype(np.float64) @ k[0, 0].T.astype(np.float64)
            scores[np.arange(length)[None] > np.arange(start, start + 500)[:, None]] = -np.inf
            lse[0, 0, start:start + 500] = np.log(np.exp(scores).sum(-1))
        arrays |= {"layers.0.q": q, "layers.0.k": k, "layers.0.lse": lse}
        server = self.serve(arrays, [said | {"q_len": length, "kv_len": length}])
        whole = server.numbers("/api/runs/t0/map?layer=0&head=0&rows=60&columns=60").astype(float)
        self.assertEqual(np.isnan(whole).tolist(), (np.triu(np.ones((60, 60)), 1) > 0).tolist())
        self.assertAlmostEqual(np.nansum(whole) * (length / 60) ** 2 / length, 1, delta=0.01)  # f16 cells of rows that sum to 1
        for row in rows:
            keys = slice(max(0, row - 9), row + 1)
            got = server.numbers(f"/api/runs/t0/map?layer=0&head=0&queries={row}:{row + 1}&keys={keys.start}:{keys.stop}")[0].astype(float)
            expected = np.exp(0.25 * q[0, 0, row].astype(float) @ k[0, 0, keys].T.astype(float) - lse[0, 0, row])
            self.assertLess(np.abs(got - expected).max(), 2**-11)

    def test_a_very_long_text_is_read_in_part_and_says_so(self):
        arrays = {}
        length = 40000
        _, said = self.layer(arrays, 0, 1, 1, 4, 4, False, queries=None, keys=None)
        q, k = np.zeros((1, 1, length, 16), np.float32), self.random.standard_normal((1, 1, length, 16), dtype=np.float32)
        arrays |= {"layers.0.q": q, "layers.0.k": k, "layers.0.lse": np.full((1, 1, length), np.log(length), np.float32)}  # of scores of 0
        server = self.serve(arrays, [said | {"q_len": length, "kv_len": length}])
        for target in ("measures?unit=piece", "links?layer=0&head=0&top=9"):
            rows = server.json("GET", f"/api/runs/t0/{target}")["rows"]
            self.assertEqual(rows["of"], length)
            self.assertTrue(100 < rows["read"] < length, rows)
        self.assertEqual(server.ask("GET", "/api/runs/t0/weights?layer=0")[0], 413)
        self.assertEqual(server.numbers("/api/runs/t0/map?layer=0&head=0&queries=39900:40000&keys=0:40000&rows=9&columns=300").shape, (9, 300))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
