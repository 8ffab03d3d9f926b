#!/usr/bin/env python3
"""Runs `mha prune`: its order, curves and checkpoint against `mha view --zero-head` and plain sums, its formats, what it refuses; and every
command on a folder whose heads were removed.
Usage: prune_test.py MHA TINY_BERT (see mha_command.py).

What needs the default model (MHA_TEST_MODEL, else the cache) is skipped without it, and says so.
"""

import csv
import io
import json
import os
import pathlib
import re
import shutil
import struct
import unittest
import xml.etree.ElementTree

from mha_command import Command, default_model

TEXTS = ["the man saw the astronomers", "a man with the telescope .", "the telescope", "a man saw a man", "saw , saw", "the astronomer with a man",
         "the man with the telescope saw", "astronomers"]


def tensors(path):
    """{name: shape} of a safetensors file."""
    data = pathlib.Path(path).read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + size])
    return {name: tensor["shape"] for name, tensor in header.items() if name != "__metadata__"}


class PruneCommand(Command):
    def setUp(self):
        super().setUp()
        self.out = os.path.join(self.folder, "smaller")

    def data(self, *arguments, **keywords):
        return json.loads(self.good("prune", *arguments, "--json", **keywords))

    def write(self, name, text):
        path = pathlib.Path(self.folder, name)
        path.write_text(text, encoding="utf-8")
        return str(path)

    def effect(self, text, head, **keywords):
        """1 - cosine of the sentence vectors without one head, as `mha view` tells it."""
        change = json.loads(self.good("view", text, "--zero-head", head, "--json", **keywords))["change"]
        return 1 - change["cosine"]


class Prune(PruneCommand):
    def test_order_is_that_of_single_effects_on_every_second_text(self):
        data = self.data(*TEXTS)
        self.assertEqual((data["texts_to_order"], data["texts_to_measure"], len(data["order"])), (4, 4, 8))
        effects = [head["effect"] for head in data["order"]]
        self.assertEqual(effects, sorted(effects))
        self.assertGreater(effects[0], 0)
        for head in data["order"][::3]:
            name = f"{head['layer']}.{head['head']}"
            expected = sum(self.effect(text, name) for text in TEXTS[::2]) / 4
            self.assertAlmostEqual(head["effect"], expected, delta=1e-9)

    def test_curve_is_that_of_the_heads_gone_together(self):
        data = self.data(*TEXTS, "--seeds", "3")
        self.assertEqual([point["removed"] for point in data["curve"]], list(range(9)))
        self.assertAlmostEqual(data["curve"][0]["cosine"], 1, delta=1e-12)
        self.assertEqual(data["curve"][0]["correlation"], 1)
        gone = [f"{head['layer']}.{head['head']}" for head in data["order"][:3]]
        options = [part for head in gone for part in ("--zero-head", head)]
        cosines = [json.loads(self.good("view", text, *options, "--json"))["change"]["cosine"] for text in TEXTS[1::2]]
        self.assertAlmostEqual(data["curve"][3]["cosine"], sum(cosines) / 4, delta=1e-9)
        least = next((point["removed"] for point in data["curve"] if point["correlation"] < 0.99), 9)
        self.assertEqual(data["can_go"], {"heads": least - 1, "least_correlation": 0.99})
        self.assertEqual([point["removed"] for point in data["random"]["points"]], list(range(1, 9)))
        for point in data["random"]["points"]:
            for spread in (point["cosine"], point["correlation"]):
                self.assertLessEqual(spread["least"], spread["mean"])
                self.assertLessEqual(spread["mean"], spread["most"])
        self.assertEqual(data["random"]["points"][7]["cosine"]["least"], data["random"]["points"][7]["cosine"]["most"])  # all gone: one way
        self.assertAlmostEqual(data["random"]["points"][7]["cosine"]["mean"], data["curve"][8]["cosine"], delta=1e-12)

    def test_formats_say_the_same(self):
        data = self.data(*TEXTS)
        rows = list(csv.DictReader(io.StringIO(self.good("prune", *TEXTS, "--csv"), newline="")))
        self.assertEqual(len(rows), 9)
        random = {point["removed"]: point for point in data["random"]["points"]}
        for point, row in zip(data["curve"], rows):
            self.assertEqual((int(row["removed"]), float(row["cosine"]), float(row["correlation"])),
                             (point["removed"], point["cosine"], point["correlation"]))
            chance = random.get(point["removed"])
            self.assertEqual(row["random_correlation_most"], "" if chance is None else str(chance["correlation"]["most"]))
        for head, row in zip(data["order"], rows[1:]):
            self.assertEqual((int(row["layer"]), int(row["head"]), float(row["effect"])), (head["layer"], head["head"], head["effect"]))
        table = self.good("prune", *TEXTS)
        self.assertLessEqual(max(map(len, table.splitlines())), 80)
        self.assertIn(f"{data['can_go']['heads']} of 8 heads can go", table)
        lines = [line.split() for line in table.splitlines() if re.match(r" +\d+ +\d+\.\d+ ", line)]
        self.assertEqual([line[1] for line in lines], [f"{head['layer']}.{head['head']}" for head in data["order"]])
        self.assertEqual([line[4] for line in lines], [f"{point['correlation']:.4f}" for point in data["curve"][1:]])

    def test_svg(self):
        path = os.path.join(self.folder, "curve.svg")
        self.good("prune", *TEXTS, "--svg", path)
        root = xml.etree.ElementTree.parse(path).getroot()
        self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
        text = pathlib.Path(path).read_text(encoding="utf-8")
        self.assertIn("prefers-color-scheme:dark", text)
        for part in ("rank correlation of similarities", "cosine of sentence vectors", "heads removed", "least worth first", "5 random orders"):
            self.assertIn(part, text)
        lines = [path.get("d") for path in root.iter("{http://www.w3.org/2000/svg}path") if path.get("class") == "mark"]
        self.assertEqual([line.count("L") for line in lines], [8, 8])

    def test_checkpoint(self):
        data = self.data(*TEXTS, "--keep", "5", "--out", self.out)
        order = self.data(*TEXTS)
        self.assertEqual(data["order"], order["order"])
        self.assertEqual(data["curve"], [order["curve"][3]])
        written = data["written"]
        self.assertEqual((written["kept"], written["difference"]), (5, 0))
        gone = {}
        for head in data["order"][:3]:
            gone.setdefault(str(head["layer"]), []).append(head["head"])
        config = json.loads(pathlib.Path(self.out, "config.json").read_text(encoding="utf-8"))
        self.assertEqual(config.pop("pruned_heads"), {layer: sorted(heads) for layer, heads in gone.items()})
        self.assertEqual(config, json.loads(pathlib.Path(self.model, "config.json").read_text(encoding="utf-8")))
        self.assertEqual(sorted(os.listdir(self.out)), ["config.json", "model.safetensors", "tokenizer.json"])
        before, after = (tensors(os.path.join(folder, "model.safetensors")) for folder in (self.model, self.out))
        self.assertEqual(before.keys(), after.keys())
        for layer in range(2):
            kept = 8 * (4 - len(gone.get(str(layer), [])))
            prefix = f"encoder.layer.{layer}.attention."
            self.assertEqual([after[prefix + f"self.{name}.weight"] for name in ("query", "key", "value")], [[kept, 32]] * 3)
            self.assertEqual(after[prefix + "output.dense.weight"], [32, kept])
        saved = written["bytes_before"] - written["bytes_after"]
        self.assertEqual(saved // 100, 3 * (4 * 8 * 32 + 3 * 8) * 4 // 100)  # but for some digits of the header
        self.assertEqual(written["bytes_after"], os.path.getsize(os.path.join(self.out, "model.safetensors")))
        # What the checkpoint says of a text is what the masked model says.
        masked = [part for layer, heads in gone.items() for head in heads for part in ("--zero-head", f"{layer}.{head}")]
        a = json.loads(self.good("view", TEXTS[0], "--json", *masked))["measure"]["values"]
        b = json.loads(self.good("view", TEXTS[0], "--json", "--model", self.out, model=False))["measure"]["values"]
        for layer in range(2):
            for head in range(4):
                lost = head in gone.get(str(layer), [])
                self.assertEqual(b[layer][head], None if lost else a[layer][head])
        self.assertIn("3 of the 8 were removed", self.good("prune", *TEXTS, "--model", self.out, model=False))

    def test_nothing_is_overwritten(self):
        os.mkdir(self.out)
        pathlib.Path(self.out, "mine").write_text("mine", encoding="utf-8")
        self.bad("prune", *TEXTS, "--keep", "5", "--out", self.out, says=["is there already"])
        self.bad("prune", *TEXTS, "--keep", "5", "--out", self.model, says=["is there already"])
        self.assertEqual(os.listdir(self.out), ["mine"])
        self.bad("prune", *TEXTS, "--keep", "5", "--out", os.path.join(self.folder, "no", "where"), says=["no/where"])
        self.assertEqual(sorted(os.listdir(self.folder)), ["smaller", "tiny"])

    def test_texts(self):
        file = self.write("texts.txt", "\n".join(["", *TEXTS, " "]) + "\n")
        data = self.data("--file", file)
        self.assertEqual((data["skipped"], data["order"]), (2, self.data(*TEXTS)["order"]))
        self.assertEqual(self.data("--file", self.write("long.txt", "\n".join([*TEXTS, "man " * 500])))["cut"], 1)
        fewer = self.data(*TEXTS, "--most", "6")
        self.assertEqual((fewer["texts_to_order"], fewer["texts_to_measure"]), (3, 3))
        self.assertEqual(self.data("--most", "7", "--seeds", "0")["texts_to_order"], 4)  # of the plain sentences

    def test_threads_change_nothing(self):
        self.assertEqual(self.good("prune", *TEXTS, "--json", "--threads", "1"), self.good("prune", *TEXTS, "--json"))

    def test_progress_only_on_a_terminal(self):
        self.assertIn("4/4 texts", self.on_terminal("prune", *TEXTS))

    def test_wrong_inputs(self):
        self.bad("prune", *TEXTS[:5], says=["5 texts", "at least 6"])
        self.bad("prune", "--file", self.write("empty.txt", ""), says=["empty.txt", "0 texts"])
        self.bad("prune", *TEXTS, "--file", "x", says=["TEXT", "--file"])
        self.bad("prune", *TEXTS, "--keep", "5", says=["--keep", "--out"])
        self.bad("prune", *TEXTS, "--out", self.out, says=["--keep", "--out"])
        for keep in ("8", "-1", "99"):
            self.bad("prune", *TEXTS, "--keep", keep, "--out", self.out, says=[f"--keep is {keep}", "0 to 7"])
        self.bad("prune", *TEXTS, "--keep", "5", "--out", self.out, "--csv", says=["--keep", "--csv"])
        self.bad("prune", *TEXTS, "--json", "--csv", says=["--json", "--csv"])
        self.bad("prune", *TEXTS, "--seeds", "-1", says=["--seeds is -1"])
        self.bad("prune", *TEXTS, "--most", "0", says=["--most is 0"])
        self.bad("prune", *TEXTS, "--most", "x", says=["--most"])
        self.bad("prune", *TEXTS, "--svg", self.folder, says=[self.folder])
        self.bad("prune", *TEXTS, "--threads", "0", says=["--threads is 0"])
        self.bad("prune", *TEXTS, b"saw \xff", says=["text 9", "UTF-8"])
        self.assertFalse(os.path.exists(self.out))


class OnAModelWithoutHeads(PruneCommand):
    """Every command reads a folder whose heads were removed, and none of them speaks of those."""

    def setUp(self):
        super().setUp()
        lost = self.data(*TEXTS, "--keep", "3", "--out", self.out)["order"][:5]
        self.lost = {(head["layer"], head["head"]) for head in lost}
        self.there = [(layer, head) for layer in range(2) for head in range(4) if (layer, head) not in self.lost]
        shutil.rmtree(self.model)
        os.rename(self.out, self.model)

    def heads(self, entries):
        return sorted((entry["layer"], entry["head"]) for entry in entries)

    def test_lists_of_heads(self):
        text = TEXTS[0]
        self.assertEqual(self.heads(json.loads(self.good("watch", text, "--json"))["watched"]), self.there)
        self.assertEqual(json.loads(self.good("watch", text, "--json"))["removed"], 5)
        self.assertIn("counted from 0; 5 of the 8 were removed; 1 text", " ".join(self.good("watch", text).split()))
        tree = self.write("tree.conllu", "1\tman\t_\tNOUN\t_\t_\t2\tnsubj\t_\t_\n2\tsaw\t_\tVERB\t_\t_\t0\troot\t_\t_\n\n")
        self.assertEqual(json.loads(self.good("score", "--conllu", tree, "--json"))["removed"], 5)
        for told in ("5 of the 8 were removed", "OPTIMISTIC, the best of 3 heads"):
            self.assertIn(told, " ".join(self.good("score", "--conllu", tree).split()))
        self.good("watch", text, "--max-logit", "1000", "--max-dead", "1", "--max-sink", "1")
        self.assertEqual(self.heads(json.loads(self.good("compare", text, TEXTS[1], "--json"))["heads"]), self.there)
        self.assertEqual(self.heads(self.data(*TEXTS)["order"]), self.there)
        self.assertEqual(self.heads(json.loads(self.good("heads", *TEXTS, "--json"))["measured"]), self.there)
        table = self.good("find", "--from", "man", "--to", "saw", text)
        rows = [tuple(map(int, line.split()[:2])) for line in table.splitlines() if re.match(r" +\d+ +\d+ ", line)]
        self.assertEqual(sorted(rows), self.there)
        cells = list(csv.DictReader(io.StringIO(self.good("export", text, "--form", "csv"), newline="")))
        self.assertEqual(sorted({(int(cell["layer"]), int(cell["head"])) for cell in cells}), self.there)

    def test_view(self):
        view = json.loads(self.good("view", TEXTS[0], "--json"))
        for layer in range(2):
            for head in range(4):
                self.assertEqual(view["measure"]["values"][layer][head] is None, (layer, head) in self.lost)
        named = self.heads(view["links"]) + self.heads(view["previous_heads"]) + self.heads(view["next_heads"])
        self.assertTrue(set(named) <= set(self.there))
        text = self.good("view", TEXTS[0])
        self.assertIn("5 of the 8 were removed", " ".join(text.split()))
        self.assertEqual(len(re.findall(r" -(?= |$)", "\n".join(line for line in text.splitlines() if re.match(r" +\d ( +(\d\.\d\d|-))+$", line)), re.M)), 5)
        layer, head = self.there[0]
        change = json.loads(self.good("view", TEXTS[0], "--zero-head", f"{layer}.{head}", "--json"))["change"]
        self.assertEqual(change["rows"], 3 * 5)
        self.assertTrue(set(self.heads(change["entropies"])) <= set(self.there))

    def test_naming_a_removed_head_is_an_error(self):
        layer, head = sorted(self.lost)[0]
        says = [f"layer {layer} head {head} was removed"]
        self.bad("view", TEXTS[0], "--layer", str(layer), "--head", str(head), says=says)
        self.bad("view", TEXTS[0], "--zero-head", f"{layer}.{head}", says=says)
        self.bad("export", TEXTS[0], "--heads", f"{layer}.{head}", says=says)
        self.bad("view", TEXTS[0], "--layer", "0", "--head", "4", says=["head is 4"])

    def test_pictures(self):
        for arguments in (["--view", "atlas"], ["--view", "matrix"]):
            xml.etree.ElementTree.fromstring(self.good("export", TEXTS[0], *arguments))


@unittest.skipUnless(default_model(), "the default model is not there (MHA_TEST_MODEL names its folder)")
class DefaultModel(PruneCommand):
    def setUp(self):
        super().setUp()
        self.model = default_model()

    def test_the_order_beats_chance_and_the_checkpoint_is_smaller(self):
        data = self.data("--most", "12", "--seeds", "2")
        points = {point["removed"]: point for point in data["curve"]}
        for chance in data["random"]["points"][:6]:  # up to half of the heads
            self.assertGreater(points[chance["removed"]]["cosine"], chance["cosine"]["most"])
        written = self.data("--most", "6", "--keep", "36", "--out", self.out)["written"]
        self.assertEqual(written["difference"], 0)
        self.assertEqual((written["bytes_before"] - written["bytes_after"]) // 1000, 36 * (4 * 32 * 384 + 3 * 32) * 4 // 1000)


if __name__ == "__main__":
    unittest.main(argv=[__file__], verbosity=2)
