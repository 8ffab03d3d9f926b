#!/usr/bin/env python3
"""Runs `mha export` and holds every form against the weights of `mha view --json`: what is drawn, as wide and as bright as it weighs, what is
written, and what is refused. Usage: export_test.py MHA TINY_BERT (see mha_command.py)."""

import base64
import csv
import io
import json
import os
import pathlib
import pty
import re
import struct
import subprocess
import unittest
import zlib
from xml.dom import minidom

import numpy as np
import safetensors.numpy
from mha_command import MHA, Command, default_model

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TAGS = "man </text><script>alert(1)</script> &amp; \"saw\" 'a' <b>the</b>"
WIDEST = 14  # of an arc at weight 1, in src/view/arcs_svg.cpp
NUMBER = r"-?\d+(?:\.\d+)?"


def pixels(data):
    """Palette indices of a PNG, row by row, and its palette."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, place = {}, 8
    while place < len(data):
        size, kind = struct.unpack(">I4s", data[place:place + 8])
        chunks[kind] = chunks.get(kind, b"") + data[place + 8:place + 8 + size]
        place += 12 + size
    width, height, depth, colour = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert (depth, colour) == (8, 3), "8 bits, palette"
    raw, rows, before = zlib.decompress(chunks[b"IDAT"]), [], bytes(width)
    for y in range(height):
        kind, line = raw[y * (width + 1)], bytearray(raw[y * (width + 1) + 1:(y + 1) * (width + 1)])
        for x in range(width):
            left, up, corner = (line[x - 1] if x else 0), before[x], (before[x - 1] if x else 0)
            guess = left + up - corner
            paeth = min((left, up, corner), key=lambda value: abs(guess - value))
            line[x] = (line[x] + (0, left, up, (left + up) // 2, paeth)[kind]) & 255
        rows.append(list(line))
        before = line
    palette = chunks[b"PLTE"]
    return rows, [palette[i:i + 3] for i in range(0, len(palette), 3)]


class Export(Command):
    def svg(self, *arguments, **keywords):
        return minidom.parseString(self.good("export", *arguments, **keywords))

    def weights(self, layer, head, *arguments):
        return json.loads(self.good("view", *arguments, "--special", "--layer", str(layer), "--head", str(head), "--json"))["weights"]

    def texts(self, document):
        return [node.firstChild.data for node in document.getElementsByTagName("text") if node.firstChild.nodeType == node.TEXT_NODE]

    def test_json_is_what_view_says(self):
        data = json.loads(self.good("export", "--form", "json"))
        self.assertEqual((data["text"], data["model"], data["change"], data["unit"], data["keys"]),
                         ("The man saw the astronomer with a telescope.", "tiny", None, "word", None))
        self.assertEqual(len(data["heads"]), 2 * 4)
        for head in data["heads"]:
            self.assertEqual(head["weights"], self.weights(head["layer"], head["head"]))
        self.assertEqual([unit["special"] for unit in data["queries"]], [True] + [False] * 9 + [True])

    def test_the_text_may_follow_the_heads(self):
        before = self.good("export", TAGS, "--heads", "1.2,0.3", "--form", "json")
        self.assertEqual(self.good("export", "--form", "json", "--heads", "1.2,0.3", TAGS), before)
        self.assertEqual(self.good("export", "--form", "json", "--heads", "1.2", "--heads", "0.3", TAGS), before)

    def test_csv_is_json_in_long_form(self):
        arguments = ("export", TAGS, "--heads", "1.2,0.3", "--unit", "piece")
        data = json.loads(self.good(*arguments, "--form", "json"))
        lines = list(csv.reader(io.StringIO(self.good(*arguments, "--form", "csv"), newline="")))
        self.assertEqual(lines[0], ["layer", "head", "query", "key", "query_text", "key_text", "weight"])
        names = [unit["text"] for unit in data["queries"]]
        expected = [[str(head["layer"]), str(head["head"]), str(q), str(k), names[q], names[k], weight]
                    for head in data["heads"] for q, row in enumerate(head["weights"]) for k, weight in enumerate(row)]
        self.assertEqual([[*line[:6], float(line[6])] for line in lines[1:]], expected)

    def test_arcs_are_as_wide_as_they_weigh(self):
        weights = self.weights(1, 2)
        least = sorted(weights[q][k] for q in range(1, 10) for k in range(1, 10) if q != k)[40]  # about half of all links
        document = self.svg("--heads", "1.2", "--least", str(least))
        names = "The man saw the astronomer with a telescope .".split()
        drawn = {}
        for path in document.getElementsByTagName("path"):
            if path.getElementsByTagName("title"):
                drawn[path.getElementsByTagName("title")[0].firstChild.data] = float(path.getAttribute("stroke-width"))
        wanted = {}
        for q in range(1, 10):
            for k in range(1, 10):
                if q != k and weights[q][k] >= least:
                    wanted[f"{names[q - 1]} \u2192 {names[k - 1]} {weights[q][k]:.3f}"] = weights[q][k]
        self.assertEqual(set(drawn), set(wanted))
        for link, width in drawn.items():
            self.assertAlmostEqual(width, max(0.8, WIDEST * wanted[link]), delta=0.006, msg=link)

    def test_arcs_say_what_they_leave_out(self):
        rows = self.weights(1, 1)
        man = rows[2]
        document = self.svg("--heads", "1.1", "--least", "0.1", "--mark", "man,telescope")
        (told,) = [text for text in self.texts(document) if text.startswith("\u201cman\u201d: ")]
        special, own = man[0] + man[-1], man[2]
        drawn = sum(weight for k, weight in enumerate(man) if 0 < k < len(man) - 1 and k != 2 and weight >= 0.1)
        numbers = [float(number) for number in re.findall(NUMBER, told)]
        for number, expected in zip(numbers, (drawn, special, own, sum(man) - drawn - special - own), strict=True):
            self.assertAlmostEqual(number, expected, delta=0.0051)

    def test_marks_stand_out_even_below_the_least(self):
        document = self.svg("--heads", "0.0,0.1", "--least", "1", "--mark", "0.1:man,astronomer,telescope", "--title", "0.1:A chain")
        self.assertEqual(len([p for p in document.getElementsByTagName("path") if p.getAttribute("class") == "mark"]), 2)
        weights = self.weights(0, 1)
        texts = self.texts(document)
        for weight in (weights[2][5], weights[5][8]):
            self.assertIn(f"{weight:.3f}", texts)
        self.assertIn("A chain", texts)
        description = document.getElementsByTagName("desc")[0].firstChild.data
        self.assertIn(f"man \u2192 astronomer {weights[2][5]:.3f}", description)

    def test_right_to_left_runs_left(self):
        def places(text):
            nodes = self.svg(text, "--heads", "0.0").getElementsByTagName("text")
            return [float(node.getAttribute("x")) for node in nodes if node.getAttribute("text-anchor") == "middle"]
        words = places("\u0627\u0644\u0631\u062c\u0644 \u0631\u0623\u0649 \u0627\u0644\u0641\u0644\u0643\u064a")
        self.assertEqual(words, sorted(words, reverse=True))
        self.assertEqual(len(words), 3)
        words = places("the man saw")
        self.assertEqual(words, sorted(words))

    def test_text_is_never_markup(self):
        for view in ("arcs", "matrix", "atlas"):
            document = self.svg(TAGS, "--heads", "0.0", "--view", view, "--title", "<i>&lt;\x01")
            self.assertEqual(document.getElementsByTagName("script"), [])
            self.assertEqual(document.getElementsByTagName("i"), [])
            self.assertIn(TAGS, document.getElementsByTagName("title")[0].firstChild.data)
            if view != "atlas":
                texts = self.texts(document)
                self.assertIn("<i>&lt;\ufffd", texts)
                for word in ("<", "&", '"', "'", "script"):
                    self.assertIn(word, texts)

    def test_long_words_are_cut_and_whole_in_the_tooltip(self):
        word = "x" * 512
        for view in ("arcs", "matrix"):
            document = self.svg(word + " man", "--heads", "0.0", "--view", view)
            (cut,) = {t.parentNode.lastChild.data for t in document.getElementsByTagName("title") if t.firstChild.data == word}
            self.assertRegex(cut, "\\Ax{5,40}\u2026\\Z")
            self.assertLess(float(document.documentElement.getAttribute("width")), 1500)

    def test_png_is_the_weights_to_eight_bits(self):
        data = self.run_mha("export", "--heads", "1.3", "--form", "png", "--special", "--cell", "3").stdout
        rows, palette = pixels(data)
        weights = self.weights(1, 3)
        self.assertEqual((len(rows), len(rows[0])), (33, 33))
        self.assertEqual([[rows[3 * q + 1][3 * k + 2] for k in range(11)] for q in range(11)],
                         [[int(254 * weight + 0.5) for weight in row] for row in weights])
        self.assertEqual((palette[0], palette[254]), (b"\x44\x01\x54", b"\xfd\xe7\x25"))
        atlas, _ = pixels(self.run_mha("export", "--form", "png", "--cell", "2").stdout)
        self.assertEqual((len(atlas), len(atlas[0])), (2 * 20 - 2, 4 * 20 - 2))
        self.assertEqual({atlas[y][x] for y in (18, 19) for x in range(len(atlas[0]))}, {255})

    def test_matrix_shows_every_weight(self):
        weights = self.weights(1, 1)
        document = self.svg("--heads", "1.1", "--view", "matrix", "--special")
        numbers = [t for t in self.texts(document) if re.fullmatch(r"\.\d\d|1\.00", t)]
        self.assertEqual(numbers, [f"{w:.2f}".removeprefix("0") for row in weights for w in row if w >= 0.005])
        long = self.svg("the man saw a telescope " * 6, "--heads", "1.1", "--view", "matrix")  # 30 words are vectors still
        self.assertEqual(long.getElementsByTagName("image"), [])

    def test_a_change_is_said_and_made(self):
        before = json.loads(self.good("export", "--heads", "1.0", "--form", "json"))
        after = json.loads(self.good("export", "--heads", "1.0", "--form", "json", "--zero-head", "0.1", "--zero-head", "0.3"))
        self.assertEqual(after["change"], "heads 0.1, 0.3 give 0")
        self.assertNotEqual(before["heads"], after["heads"])
        self.assertIn("give 0", "".join(self.texts(self.svg("--heads", "1.0", "--zero-head", "0.1", "--zero-head", "0.3"))))

    def test_files_are_whole_or_not_there(self):
        path = os.path.join(self.folder, "head.svg")
        self.assertEqual(self.good("export", "--heads", "0.0", "--out", path), "")
        whole = pathlib.Path(path).read_bytes()
        minidom.parseString(whole)
        self.assertEqual(whole.decode(), self.good("export", "--heads", "0.0"))
        link = os.path.join(self.folder, "link.svg")
        os.symlink(path, link)
        self.good("export", "--heads", "1.1", "--out", link)
        self.assertTrue(os.path.islink(link))
        self.assertNotEqual(pathlib.Path(path).read_bytes(), whole)
        self.assertEqual(sorted(name for name in os.listdir(self.folder) if "svg" in name), ["head.svg", "link.svg"])
        self.bad("export", "--heads", "0.0", "--out", os.path.join(self.folder, "no", "head.svg"), says=["head.svg"])
        self.bad("export", "--heads", "0.0", "--form", "svg", "--out", self.folder, says=[self.folder, "folder"])
        self.bad("export", "--heads", "0.0", "--form", "svg", "--out", "/dev/full", says=["/dev/full"])
        self.assertEqual(self.good("export", "--heads", "0.0", "--form", "svg", "--out", "/dev/stdout"), self.good("export", "--heads", "0.0"))

    def test_html_keeps_the_weights(self):
        done = self.run_mha("export", TAGS, "--heads", "1.2", "--mark", "man,saw", "--form", "html")
        if done.returncode != 0:
            self.assertRegex(done.stderr.decode(), r"\Amha: --form html: this build has no page[^\n]+\n\Z")
            self.skipTest("this build has no page: " + done.stderr.decode())
        page = done.stdout.decode()
        (snapshot,) = re.findall(r'<script type="application/json" id="mha-snapshot">([^<]*)</script>', page)
        snapshot = json.loads(snapshot)
        names = {name.split("/")[-1]: name for name in snapshot["responses"]}
        table = snapshot["responses"][names["weights?layer=1&unit=word&dtype=u8&kind=weight"]]
        numbers = base64.b64decode(table["body"])
        data = json.loads(self.good("export", TAGS, "--form", "json"))
        weights = [w for head in data["heads"] if head["layer"] == 1 for row in head["weights"] for w in row]
        self.assertEqual(table["shape"], f"4,{len(data['queries'])},{len(data['queries'])}")
        self.assertEqual(len(numbers), len(weights))
        for number, weight in zip(numbers, weights, strict=True):
            self.assertLessEqual(abs(number / 255 - weight), 0.5 / 255 + 1e-6)
        self.assertIn("layer=1&head=2", snapshot["state"])
        self.assertIn("default-src 'none'", page)
        self.assertLess(page.index("mha-snapshot"), page.index('<script type="module"'))

    def test_refused(self):
        for arguments, says in (
            (["--form", "gif"], ["gif", "svg", "png"]), (["--out", "x.gif"], ["x.gif", "--form"]), (["--view", "pie"], ["pie", "arcs"]),
            (["--unit", "letter"], ["letter"]), (["--view", "arcs"], ["--heads"]), (["--heads", "5"], ["--heads", "5"]),
            (["--heads", "2.0"], ["layer is 2"]), (["--heads", "0.0,0.0"], ["twice"]), (["--layer", "0"], ["--head"]),
            (["--heads", "0.0", "--layer", "0", "--head", "0"], ["--heads"]), (["--heads", "0.0", "--mark", "man"], ["--mark", "two"]),
            (["--heads", "0.0", "--mark", "man,dog"], ["--mark", "dog"]), (["--heads", "0.0", "--mark", "0.1:man,saw"], ["0.1"]),
            (["--heads", "0.0", "--title", "0.1:x"], ["0.1"]), (["--form", "csv", "--view", "atlas"], ["atlas"]),
            (["--form", "png", "--view", "arcs"], ["arcs"]), (["--cell", "2"], ["--cell"]), (["--form", "png", "--cell", "0"], ["cell"]),
            (["--form", "png", "--cell", "9999"], ["16384"]), (["--least", "2"], ["--least"]),
        ):
            self.bad("export", *arguments, says=says)

    def test_png_is_not_for_terminals(self):
        master, slave = pty.openpty()
        done = subprocess.run([MHA, "export", "--form", "png", "--model", self.model], stdout=slave, stderr=subprocess.PIPE, check=False)
        os.close(slave)
        os.close(master)
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"terminals", done.stderr)


def captured(path, length=7, texts=("a <b> c",), pieces=None, seed=1):
    """A file of two causal layers, 4 heads that share 2 key heads; returns the weights, float64, [layer, head, query, key]."""
    random = np.random.default_rng(seed)
    arrays, layers, weights = {}, [], []
    for layer in range(2):
        q = random.standard_normal((1, 4, length, 8), dtype=np.float32) * 2
        k = random.standard_normal((1, 2, length, 8), dtype=np.float32)
        scores = np.einsum("hqd,hkd->hqk", q[0].astype(np.float64), np.repeat(k[0], 2, axis=0).astype(np.float64)) * 0.5
        scores[:, ~np.tri(length, dtype=bool)] = -np.inf
        lse = np.log(np.exp(scores).sum(-1))
        arrays |= {f"layers.{layer}.q": q, f"layers.{layer}.k": k, f"layers.{layer}.lse": lse[None].astype(np.float32)}
        weights.append(np.exp(scores - lse[..., None]))
        layers.append({"name": f"layer {layer}", "heads": 4, "kv_heads": 2, "head_dim": 8, "q_len": length, "kv_len": length, "scale": 0.5,
                       "softcap": None, "causal": True, "window": None, "align": "top_left", "allowed": None, "bias": None, "sinks": None,
                       "queries": "tokens", "keys": "tokens"})
    arrays["tokens"] = np.arange(length, dtype=np.int64)[None]
    pieces = pieces or [f"w{i}" for i in range(length)]
    said = {"format": "mha.capture", "version": "1", "model": "elsewhere", "architecture": "Any", "layers": json.dumps(layers),
            "texts": json.dumps(texts), "pieces": json.dumps({"tokens": [pieces]})}
    safetensors.numpy.save_file(arrays, path, metadata=said)
    return np.stack(weights)


class Tensors(Command):
    """Heads of any origin."""

    def setUp(self):
        super().setUp()
        self.file = os.path.join(self.folder, "captured.safetensors")

    def export(self, *arguments, **keywords):
        return self.good("export", "--tensors", self.file, *arguments, model=False, **keywords)

    def test_weights_are_those_of_q_k_and_lse(self):
        weights = captured(self.file)
        data = json.loads(self.export("--form", "json", "--unit", "piece"))
        self.assertEqual((data["model"], data["text"], data["change"]), ("elsewhere", "a <b> c", None))
        self.assertEqual([unit["text"] for unit in data["queries"]], [f"w{i}" for i in range(7)])
        for head in data["heads"]:
            found = np.array([[np.nan if w is None else w for w in row] for row in head["weights"]])
            expected = weights[head["layer"], head["head"]]
            self.assertEqual(np.isnan(found).tolist(), (~np.tri(7, dtype=bool)).tolist())
            self.assertLess(np.nanmax(np.abs(found - expected)), 2e-6)

    def test_pictures(self):
        weights = captured(self.file, pieces=["<b>", "&", "c", "d", "e", "f", "g"])
        svg = minidom.parseString(self.export("--heads", "1.3", "--unit", "piece", "--mark", "g,&", "--least", "0.5"))
        texts = [node.firstChild.data for node in svg.getElementsByTagName("text")]
        self.assertIn(f"{weights[1, 3, 6, 1]:.3f}", texts)
        self.assertIn("<b>", texts)
        matrix = self.export("--heads", "1.3", "--view", "matrix")
        minidom.parseString(matrix)
        self.assertIn("url(#mha-hatch)", matrix)

    def test_a_pooled_map_is_the_largest_weight_of_each_cell(self):
        weights = captured(self.file, length=90)
        done = self.run_mha("export", "--tensors", self.file, "--heads", "0.2", "--pool", "30", "--form", "png", model=False)
        rows, _ = pixels(done.stdout)
        largest = weights[0, 2].reshape(30, 3, 30, 3).max((1, 3))
        for y in range(30):
            for x in range(30):
                self.assertLessEqual(abs(rows[y][x] - (255 if x > y else 254 * largest[y, x])), 0.5 + 1e-3)

    def test_html(self):
        captured(self.file)
        done = self.run_mha("export", "--tensors", self.file, "--heads", "1.2", "--form", "html", model=False)
        if done.returncode != 0:
            self.assertIn("no page", done.stderr.decode())
            self.skipTest("this build has no page")
        snapshot = json.loads(re.search(r'id="mha-snapshot">([^<]*)<', done.stdout.decode())[1])
        self.assertIn("tensors=t0", snapshot["state"])
        self.assertIn("GET /api/runs/t0/weights?layer=1&unit=word&dtype=f16&kind=weight", snapshot["responses"])

    def test_refused(self):
        captured(self.file)
        for arguments, says in (
            (["--run", "t1"], ["t1", "t0"]), (["--heads", "2.0"], ["layer is 2"]), (["--heads", "0.4"], ["head is 4"]), (["man saw"], ["TEXT"]),
            (["--zero-head", "0.0"], ["changes"]), (["--pool", "9"], ["--pool"]), (["--heads", "0.0", "--form", "png", "--pool", "0"], ["--pool"]),
            (["--heads", "0.0", "--mark", "w0,nobody"], ["--mark", "nobody"]),
        ):
            self.bad("export", "--tensors", self.file, *arguments, model=False, says=says)
        self.bad("export", "--tensors", "/no/file", model=False, says=["/no/file"])
        self.bad("export", "--pool", "9", says=["--tensors"])


class TheReadmesPicture(Command):
    def test_its_command_still_makes_it(self):
        model = default_model()
        if model is None:
            self.skipTest("the default model is not there (./run downloads it)")
        said = re.search(r"^( *mha export --heads 5\.11,5\.4 .*?)\n```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
        command = said[1].replace("\\\n", " ").replace("docs/telescope.svg", "-")
        made = subprocess.run(["bash", "-c", f'mha() {{ "{MHA}" "$@" --model "{model}"; }}; {command}'], capture_output=True, check=True).stdout.decode()
        kept = (ROOT / "docs/telescope.svg").read_text(encoding="utf-8")
        self.assertEqual(re.split(NUMBER, made), re.split(NUMBER, kept))
        for ours, theirs in zip(re.findall(NUMBER, made), re.findall(NUMBER, kept), strict=True):
            self.assertLess(abs(float(ours) - float(theirs)), 0.02)  # another ISA may round a weight's last digit otherwise


if __name__ == "__main__":
    import sys
    unittest.main(argv=sys.argv[:1], verbosity=2)
