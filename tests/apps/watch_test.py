#!/usr/bin/env python3
"""Runs `mha watch`: its numbers against tables of weights that `mha view` prints, its three formats, thresholds, and what it refuses.
Usage: watch_test.py MHA TINY_BERT (see mha_command.py).

What needs the default model (MHA_TEST_MODEL, else the cache) is skipped without it, and says so.
"""

import json
import math
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import unittest

from mha_command import MHA, Command, default_model

TEXT = "the man saw the astronomers with a telescope . a man with the telescope , the astronomer saw"
SHARES = ("collapsed", "sink", "special", "uniform", "one_key", "dead")
METRICS = {"mha_head_rows": "rows", "mha_head_nonfinite_rows": "nonfinite_rows", "mha_head_max_logit": "max_logit", "mha_head_entropy_nats": "entropy",
           "mha_head_entropy_collapsed_ratio": "collapsed", "mha_head_sink_weight_ratio": "sink", "mha_head_special_weight_ratio": "special",
           "mha_head_uniform_rows_ratio": "uniform", "mha_head_single_key_rows_ratio": "one_key", "mha_head_dead_rows_ratio": "dead",
           "mha_head_nan_rows": "nan_rows", "mha_head_infinite_rows": "infinite_rows"}


def parse_prometheus(text):
    """{(metric, labels): value} of text exposition format 0.0.4; AssertionError where it breaks a rule of the format."""
    assert text.endswith("\n") and "\r" not in text
    kinds, samples, done, current = {}, {}, set(), None
    for line in text[:-1].split("\n"):
        comment = re.fullmatch(r"# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+)", line)
        sample = re.fullmatch(r'([a-zA-Z_:][a-zA-Z0-9_:]*)\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*",?)*)\} (\S+)', line)
        assert comment or sample, line
        name = comment[2] if comment else sample[1]
        if name != current:  # all lines of a metric stand together
            assert name not in done, line
            done.add(name)
            current = name
        if comment:
            assert (comment[1], name) not in kinds and not any(n == name for n, _ in samples), line
            assert comment[1] != "TYPE" or comment[3] in ("counter", "gauge", "histogram", "summary", "untyped"), line
            kinds[comment[1], name] = comment[3]
            continue
        labels = tuple(re.findall(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"', sample[2]))
        assert ("TYPE", name) in kinds and (name, labels) not in samples, line
        assert sample[3] in ("NaN", "+Inf", "-Inf") or re.fullmatch(r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?", sample[3]), line
        samples[name, labels] = float(sample[3])
    return samples


class WatchCommand(Command):
    def data(self, *arguments, **keywords):
        return json.loads(self.good("watch", *arguments, "--json", **keywords))

    def write(self, name, data):
        path = os.path.join(self.folder, name)
        pathlib.Path(path).write_bytes(data)
        return path

    def expect_plain(self, text, data, heads, **keywords):
        """The numbers of one text, by plain sums over the tables of weights that `mha view` prints."""
        for head in heads:
            where = ["--layer", str(head["layer"]), "--head", str(head["head"])]
            view = json.loads(self.good("view", text, "--pieces", "--special", "--json", *where, **keywords))
            table, size = view["weights"], len(view["names"])
            special = [i for i, name in enumerate(view["names"]) if name.startswith("[CLS]") or name.startswith("[SEP]")]
            self.assertEqual((len(special), size, head["rows"]), (2, data["tokens"], size))
            entropies = [-sum(w * math.log(w) for w in row if w > 0) for row in table]
            most = math.log(size)
            expected = {"entropy": sum(entropies), "sink": sum(row[0] for row in table), "special": sum(row[i] for row in table for i in special),
                        "collapsed": sum(e < 0.1 * most for e in entropies), "uniform": sum(e > 0.99 * most for e in entropies),
                        "one_key": sum(max(row) > 0.99 for row in table),
                        "dead": sum(e > 0.99 * most or max(row) > 0.99 for e, row in zip(entropies, table))}
            for name, value in expected.items():
                self.assertAlmostEqual(head[name], value / size, delta=1e-5, msg=(name, head))
            self.assertEqual((head["nan_rows"], head["infinite_rows"]), (0, 0))


class Watch(WatchCommand):
    def test_numbers_are_those_of_the_weights(self):
        data = self.data(TEXT)
        self.assertEqual((data["texts"], data["cut"], data["skipped"], data["layers"], data["heads"]), (1, 0, 0, 2, 4))
        self.assertEqual([(h["layer"], h["head"]) for h in data["watched"]], [(layer, head) for layer in range(2) for head in range(4)])
        self.expect_plain(TEXT, data, data["watched"])

    def test_texts_are_added_up(self):
        texts = ["the man saw", TEXT, "a telescope"]
        alone, together = [self.data(text) for text in texts], self.data(*texts)
        self.assertEqual(together["tokens"], sum(one["tokens"] for one in alone))
        self.assertEqual(together["texts"], 3)
        for i, head in enumerate(together["watched"]):
            parts = [one["watched"][i] for one in alone]
            self.assertEqual(head["max_logit"], max(part["max_logit"] for part in parts))
            self.assertEqual(head["rows"], sum(part["rows"] for part in parts))
            for name in ("entropy", *SHARES):
                self.assertAlmostEqual(head[name], sum(part[name] * part["rows"] for part in parts) / head["rows"], places=6)

    def test_a_file_is_a_text_a_line(self):
        texts = ["the man saw", TEXT, "a telescope"]
        wanted = self.data(*texts)["watched"]
        for ending in ("\n", "\r\n"):
            data = self.data("--file", self.write("texts.txt", ending.join(["", *texts, " ", "\t"]).encode()))
            self.assertEqual((data["watched"], data["texts"], data["skipped"]), (wanted, 3, 3))
        done = subprocess.run([MHA, "watch", "--file", "-", "--json", "--model", self.model], input="\n".join(texts).encode(), capture_output=True,
                              env=self.environment(), timeout=120, check=True)
        self.assertEqual(json.loads(done.stdout)["watched"], wanted)

    def test_long_texts_are_cut_and_it_says_so(self):
        whole = self.data(" ".join(["man"] * 38))
        file = self.write("long.txt", b"man " * 5000 + b"\n" + b"saw " * 39)
        data = self.data(" ".join(["man"] * 500))
        self.assertEqual((data["cut"], data["tokens"], whole["cut"], whole["tokens"]), (1, 40, 0, 40))
        self.assertEqual(data["watched"], whole["watched"])
        self.assertEqual(self.data("--file", file)["cut"], 2)
        self.assertIn("2 texts were longer than the 40 tokens", " ".join(self.good("watch", "--file", file).split()))
        self.assertNotIn("longer", self.good("watch", TEXT))

    def test_without_texts_the_plain_sentences(self):
        sentences = pathlib.Path(__file__).parents[2].joinpath("data/plain_sentences.txt").read_text(encoding="utf-8").split("\n")
        count = sum(line != "" for line in sentences)
        self.assertEqual(self.data()["texts"], count)
        self.assertIn(f"the {count} plain sentences", " ".join(self.good("watch", "--help", model=False).split()))

    def test_table(self):
        data, lines = self.data(TEXT), self.good("watch", TEXT).split("\n")
        self.assertLessEqual(max(map(len, lines)), 80)
        rows = [line.split() for line in lines if re.match(r" +\d+ +\d+ ", line)]
        self.assertEqual(len(rows), 8)
        for head, row in zip(data["watched"], rows):
            self.assertEqual(row, [str(head["layer"]), str(head["head"]), f"{head['max_logit']:.2f}", f"{head['entropy']:.3f}",
                                   *(f"{head[name]:.3f}" for name in ("collapsed", "sink", "special", "uniform", "one_key")), "0", "0"])

    def test_sorted_with_the_worst_first(self):
        heads = self.data(TEXT)["watched"]
        for name, low in (("max_logit", False), ("entropy", True), ("sink", False), ("rows", False)):
            order = sorted(heads, key=lambda head, name=name, low=low: head[name] if low else -head[name])
            self.assertEqual(self.data(TEXT, "--sort", name)["watched"], order)
        self.assertNotEqual(self.data(TEXT, "--sort", "entropy")["watched"], heads)

    def test_prometheus_says_what_json_says(self):
        odd = os.path.join(self.folder, 'ti"n\\y')
        shutil.copytree(self.model, odd)
        for model, label in ((self.model, "tiny"), (odd, 'ti\\"n\\\\y')):
            data = json.loads(self.good("watch", TEXT, "--json", "--model", model, model=False))
            samples = parse_prometheus(self.good("watch", TEXT, "--prometheus", "--model", model, model=False))
            expected = {(metric, (("model", label), ("layer", str(h["layer"])), ("head", str(h["head"])))): h[name]
                        for metric, name in METRICS.items() for h in data["watched"]}
            for metric, name in (("mha_watch_texts", "texts"), ("mha_watch_tokens", "tokens"), ("mha_watch_cut_texts", "cut")):
                expected[metric, (("model", label),)] = data[name]
            self.assertEqual(samples, expected)

    def test_thresholds(self):
        heads = self.data(TEXT)["watched"]
        options = {"--max-logit": ("max_logit", max, 1), "--min-entropy": ("entropy", min, -1), "--max-sink": ("sink", max, 1),
                   "--max-collapsed": ("collapsed", max, 1), "--max-dead": ("dead", max, 1)}
        for option, (name, worst, sign) in options.items():
            value = worst(head[name] for head in heads)
            self.good("watch", TEXT, option, f"{value + sign * 1e-4:.6f}")
            limit = value - sign * 1e-4
            if limit < 0:
                continue
            done = self.run_mha("watch", TEXT, option, f"{limit:.6f}")
            self.assertEqual((done.returncode, done.stdout.decode()), (1, self.good("watch", TEXT)))
            lines = done.stderr.decode().splitlines()
            passed = [head for head in heads if sign * head[name] > sign * limit]
            self.assertEqual(len(lines), len(passed))
            for head, line in zip(passed, lines):
                self.assertRegex(line, rf"\Amha: layer {head['layer']} head {head['head']}: .* is (above|below) {option} ")
                said = re.findall(r"\d+\.?\d*(?:e-\d+)?", line)
                self.assertAlmostEqual(float(said[-2]), head[name], delta=1e-5 * (1 + abs(head[name])))
                self.assertAlmostEqual(float(said[-1]), limit, places=4)
        self.assertGreater(max(head["max_logit"] for head in heads), 0.001)
        self.good("watch", TEXT, "--max-nonfinite", "0", "--max-dead", "1", "--min-entropy", "0")

    def damage(self, pattern, value, count):
        """Puts `value` into the first `count` numbers of every f32 tensor whose name fits."""
        data = bytearray(pathlib.Path(self.model, "model.safetensors").read_bytes())
        size = struct.unpack("<Q", data[:8])[0]
        names = [(name, tensor) for name, tensor in json.loads(data[8:8 + size]).items() if re.search(pattern, name)]
        self.assertEqual([tensor["dtype"] for _, tensor in names], ["F32"] * len(names))
        self.assertTrue(names)
        for _, tensor in names:
            for i in range(count):
                struct.pack_into("<f", data, 8 + size + tensor["data_offsets"][0] + 4 * i, value)
        self.write_model("model.safetensors", bytes(data))

    def test_nan_is_counted_and_passes_every_threshold(self):
        self.damage(r"layer\.1\.attention\.self\.query\.bias", math.nan, 8)  # layer 1, head 0: every row
        data = self.data(TEXT)
        for head in data["watched"]:
            broken = (head["layer"], head["head"]) == (1, 0)
            self.assertEqual((head["nan_rows"], head["infinite_rows"], head["entropy"] is None), (data["tokens"] if broken else 0, 0, broken))
        for option, limit in (("--max-nonfinite", "0"), ("--max-logit", "1000"), ("--min-entropy", "0"), ("--max-dead", "1"), ("--max-sink", "1")):
            done = self.run_mha("watch", TEXT, option, limit)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr.decode(), rf"\Amha: layer 1 head 0: [^\n]* {option} {limit}\n\Z")
        self.assertIn("nan", self.good("watch", TEXT))
        samples = parse_prometheus(self.good("watch", TEXT, "--prometheus"))
        self.assertEqual([labels[1:] for (name, labels), value in samples.items() if name == "mha_head_entropy_nats" and math.isnan(value)],
                         [(("layer", "1"), ("head", "0"))])
        self.assertEqual(self.data(TEXT, "--sort", "entropy")["watched"][0]["nan_rows"], data["tokens"])

    def test_infinities(self):
        self.damage(r"layer\.0\.attention\.self\.(query|key)\.bias", 1e30, 1)  # layer 0, head 0: every score
        head = self.data(TEXT)["watched"][0]
        tokens = self.data(TEXT)["tokens"]
        self.assertEqual((head["infinite_rows"], head["nan_rows"], head["max_logit"]), (tokens, tokens, None))
        samples = parse_prometheus(self.good("watch", TEXT, "--prometheus"))
        self.assertEqual(samples["mha_head_max_logit", (("model", "tiny"), ("layer", "0"), ("head", "0"))], math.inf)
        done = self.run_mha("watch", TEXT, "--max-logit", "1000000")
        self.assertEqual(done.returncode, 1)
        self.assertIn("layer 0 head 0: largest logit inf is above --max-logit 1e+06", done.stderr.decode())
        self.assertLessEqual(len(done.stderr.decode().splitlines()), 20)

    def test_progress_only_on_a_terminal(self):
        self.assertIn("2/2 texts", self.on_terminal("watch", "the man", "saw"))
        self.good("watch", "the man", "saw")  # nothing on standard error

    def test_threads_change_nothing(self):
        self.assertEqual(self.good("watch", TEXT, "--threads", "1"), self.good("watch", TEXT))

    def test_wrong_inputs(self):
        file = self.write("texts.txt", b"the man\nsaw \xff\n")
        self.bad("watch", "--file", file, says=["texts.txt, line 2", "UTF-8"])
        self.bad("watch", "the man", b"saw \xff", says=["text 2", "UTF-8"])
        self.bad("watch", "--file", self.write("empty.txt", b""), says=["empty.txt", "no text"])
        self.bad("watch", "", " ", says=["no text"])
        self.bad("watch", "--file", self.folder, says=[self.folder, "folder"])
        self.bad("watch", "--file", "/does/not/exist", says=["/does/not/exist"])
        self.bad("watch", "--file", "", says=["cannot be read"])
        self.bad("watch", "the man", "--file", file, says=["TEXT", "--file"])
        self.bad("watch", "--json", "--prometheus", "man", says=["--json", "--prometheus"])
        self.bad("watch", "man", "--sort", "beauty", says=["--sort"])
        self.bad("watch", "man", "--threads", "0", says=["--threads is 0"])
        self.bad("watch", "man", "--threads", "100000", says=["100000"])
        self.bad("watch", "man", "--model", "/does/not/exist", model=False, says=["/does/not/exist"])
        for value in ("x", "", "nan", "inf", "1e999", "0x1"):
            self.bad("watch", "man", "--max-logit", value, says=["--max-logit"])
        for value in ("-0.1", "1.1"):
            self.bad("watch", "man", "--max-dead", value, says=["--max-dead", value])


@unittest.skipUnless(default_model(), "the default model is not there (MHA_TEST_MODEL names its folder)")
class DefaultModel(WatchCommand):
    def setUp(self):
        super().setUp()
        self.model = default_model()

    def test_numbers_are_those_of_the_weights(self):
        text = "The man saw the astronomer with a telescope. " * 3
        data = self.data(text)
        self.assertEqual((data["texts"], data["layers"], data["heads"], len(data["watched"])), (1, 6, 12, 72))
        self.expect_plain(text, data, data["watched"][2::5])

    def test_the_head_of_the_previous_word_looks_at_one_key(self):
        done = self.run_mha("watch", "--max-dead", "0.9", "--max-logit", "20", "--max-collapsed", "0.9")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr.decode(), r"\A(mha: layer 0 head 2: [^\n]*\n){3}\Z")

    def test_a_text_longer_than_its_512_positions(self):
        data = self.data("the man saw the astronomer " * 1000)
        self.assertEqual((data["cut"], data["tokens"]), (1, 512))
        self.assertEqual({head["rows"] for head in data["watched"]}, {512})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
