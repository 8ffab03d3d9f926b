#!/usr/bin/env python3
"""Runs `mha view` and `mha find`, and what all sub-commands share: usage, errors, colour, the cache.
Usage: command_test.py MHA TINY_BERT (see mha_command.py).

What needs the default model (MHA_TEST_MODEL, else the cache) is skipped without it, and says so.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

from mha_command import MHA, Command, default_model

TELESCOPE = "The man saw the astronomer with a telescope."
ESCAPE = "\x1b"


class General(Command):
    def test_version_and_help(self):
        self.assertRegex(self.good("--version", model=False), r"\Amha \d+\.\d+\.\d+\n\Z")
        for arguments in (["--help"], *([name, "--help"] for name in ("view", "find", "heads", "explain", "claims", "shapes", "verify", "watch"))):
            text = self.good(*arguments, model=False)
            self.assertIn("Examples:", text)
            self.assertIn("  mha ", text)

    def test_usage_errors(self):
        self.bad(model=False, says=["no command"])
        self.bad("bogus", model=False, says=['"bogus"', "view", "find", "explain", "claims", "shapes", "verify"])
        self.bad("view", "--bogus", model=False, says=["--bogus"])
        self.bad("view", "The", "man", says=["quotes"])
        self.bad("find", "--from", "man", says=["--to"])

    def test_no_model(self):
        self.bad("view", model=False, says=["./run", "--model", self.cache])
        self.bad("view", "--model", "/does/not/exist", model=False, says=["/does/not/exist"])
        self.bad("view", model=False, XDG_CACHE_HOME=None, HOME=None, says=["--model"])
        for name in ("config.json", "model.safetensors", "tokenizer.json"):
            kept = pathlib.Path(self.model, name).read_bytes()
            os.remove(os.path.join(self.model, name))
            self.bad("view", says=[name])
            self.write_model(name, kept)
        self.good("view")

    def test_damaged_models(self):
        weights = pathlib.Path(self.model, "model.safetensors").read_bytes()
        config = json.loads(pathlib.Path(self.model, "config.json").read_text(encoding="utf-8"))
        for data in (b"", weights[:7], weights[:500], weights[:-1], b"\xff" * 8 + weights[8:], weights[:8] + b"{" * 100 + weights[108:]):
            self.write_model("model.safetensors", data)
            self.bad("view", says=["model.safetensors"])
        self.write_model("model.safetensors", weights)
        for change in ({"hidden_size": 64}, {"num_hidden_layers": 3}, {"num_attention_heads": 5}, {"model_type": "gpt2"}, {"vocab_size": -1}):
            self.write_model("config.json", json.dumps(config | change).encode())
            self.bad("view")
        for data in (b"", b"{", b"[]", b"\xff\xfe", b'{"model": 1}'):
            self.write_model("config.json", data)
            self.bad("find", "--from", "man", "--to", "saw", says=["config.json"])
        self.write_model("config.json", json.dumps(config).encode())
        for data in (b"", b"{", b"null", b'{"model": {"type": "BPE"}}'):
            self.write_model("tokenizer.json", data)
            self.bad("view", says=["tokenizer.json"])

    def test_bad_text(self):
        for command in (["view"], ["find", "--from", "a", "--to", "man"]):
            self.bad(*command, b"the \xff man", says=["UTF-8"])
            self.bad(*command, "", says=["no word"])
            self.bad(*command, " \t ", says=["no word"])
            self.bad(*command, "man " * 100, says=["102", "40"])
            self.bad(*command, "a" * 100000 + " man" * 100, says=["40"])

    def test_output_that_cannot_be_written_is_a_failure(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([MHA, "--version"], stdout=full, stderr=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr.decode(), r"\Amha: [^\n]+\n\Z")


class Colour(Command):
    def test_only_on_a_terminal_and_never_with_no_color(self):
        for arguments in (["view"], ["view", "--layer", "1", "--head", "3"], ["find", "--from", "a", "--to", "man"]):
            self.assertNotIn(ESCAPE, self.good(*arguments))
            self.assertIn(ESCAPE, self.on_terminal(*arguments))
            self.assertNotIn(ESCAPE, self.on_terminal(*arguments, NO_COLOR="1"))
            self.assertNotIn(ESCAPE, self.on_terminal(*arguments, TERM="dumb"))
            self.assertNotIn(ESCAPE, self.on_terminal(*arguments, "--json"))

    def test_colour_changes_nothing_else(self):
        coloured = self.on_terminal("view", "the man saw")
        plain = self.on_terminal("view", "the man saw", NO_COLOR="1")
        without = re.sub(r"\x1b\[[0-9;]*m", "", coloured).replace("\r\n", "\n")
        lines = [line for line in without.split("\n") if not line.startswith("scale")]  # the colour bar is for colours
        self.assertEqual("\n".join(lines), plain.replace("\r\n", "\n"))

    def test_text_cannot_talk_to_the_terminal(self):
        for text in ("the \x1b[31mman\x1b[0m saw\x07", "man\x9b31m", "the man\x7f"):
            for output in (self.good("view", text), self.on_terminal("view", text, NO_COLOR="1"), self.good("find", "--from", "1", "--to", "saw", text)
                           if "31m saw" in text else ""):
                self.assertNotRegex(output.replace("\r\n", "\n"), "[\x00-\x09\x0b-\x1f\x7f-\x9f]")


class View(Command):
    def test_shows_words_map_and_readings(self):
        text = self.good("view")
        for part in (TELESCOPE, "reading 1", "reading 2", "telescope -> man", "telescope -> astronomer", "map: special"):
            self.assertIn(part, text)
        self.assertLessEqual(max(map(len, text.split("\n"))), 80)

    def test_none_is_an_answer(self):
        data = json.loads(self.good("view", "--json"))
        text = self.good("view")
        sections = re.split(r"\n(?=reading|the links)", text)
        for section, heads in ((sections[1], data["reading1"]), (sections[2], data["reading2"])):
            self.assertEqual(section.count("layer"), len(heads))
            self.assertEqual("none" in section, not heads)

    def test_readings_are_what_the_tables_say(self):
        data = json.loads(self.good("view", "--json"))
        names = data["names"]
        man, astronomer, telescope = (names.index(word) for word in ("man", "astronomer", "telescope"))
        first, second = [], []
        for layer in range(data["layers"]):
            for head in range(data["heads"]):
                table = json.loads(self.good("view", "--json", "--layer", str(layer), "--head", str(head)))["weights"]
                best = [max((k for k in range(len(names)) if k != q), key=lambda k, q=q: table[q][k]) for q in range(len(names))]
                if best[man] == telescope:
                    first.append({"layer": layer, "head": head, "weight": table[man][telescope]})
                if best[man] == astronomer and best[astronomer] == telescope:
                    second.append({"layer": layer, "head": head, "man_astronomer": table[man][astronomer],
                                   "astronomer_telescope": table[astronomer][telescope]})
        self.assertEqual(data["reading1"], sorted(first, key=lambda e: -e["weight"]))
        self.assertEqual(data["reading2"], sorted(second, key=lambda e: -e["man_astronomer"] * e["astronomer_telescope"]))
        self.assertEqual(len(data["telescope_man"]), data["layers"] * data["heads"])

    def tables(self, *arguments):
        """Names, and every head's table."""
        data = json.loads(self.good("view", "--json", *arguments))
        heads = [(layer, head) for layer in range(data["layers"]) for head in range(data["heads"])]
        tables = {(layer, head): json.loads(self.good("view", "--json", "--layer", str(layer), "--head", str(head), *arguments))["weights"]
                  for layer, head in heads}
        return data, tables

    def test_other_texts_get_each_words_links_that_stand_out(self):
        for flags in ([], ["--pieces"]):
            data, tables = self.tables("the man saw a telescope", *flags)
            names = data["names"]
            strongest = {(h, q): max((k for k in range(len(names)) if k != q), key=lambda k, h=h, q=q: tables[h][q][k])
                         for h in tables for q in range(len(names))}
            seen = set()
            for link in data["links"]:
                q, k, head = names.index(link["from"]), names.index(link["to"]), (link["layer"], link["head"])
                seen.add((q, k))
                self.assertEqual(link["weight"], tables[head][q][k])
                self.assertEqual(strongest[head, q], k)
                self.assertEqual(link["strongest_in"], sum(strongest[h, q] == k for h in tables))
                self.assertEqual(link["usual"] is None, flags == ["--pieces"])
                above = link["weight"] - (link["usual"] or 0)
                if flags:  # without usual weights: the largest of those heads
                    self.assertEqual(above, max(tables[h][q][k] for h in tables if strongest[h, q] == k))
            self.assertEqual(seen, {(q, k) for (_, q), k in strongest.items()})

    def test_neighbours(self):
        data, tables = self.tables("the man saw a telescope with a man")
        names = data["names"]
        for key, offset in (("previous_heads", -1), ("next_heads", 1)):
            expected = {}
            for head, table in tables.items():
                rows = [q for q in range(len(names)) if 0 <= q + offset < len(names)]
                most = sum(max((k for k in range(len(names)) if k != q), key=lambda k, q=q: table[q][k]) == q + offset for q in rows)
                if most / len(rows) >= 0.5:
                    expected[head] = sum(table[q][q + offset] for q in rows) / len(rows)
            self.assertEqual({(h["layer"], h["head"]) for h in data[key]}, set(expected))
            for head in data[key]:
                self.assertAlmostEqual(head["weight"], expected[head["layer"], head["head"]], places=5)
            self.assertEqual([h["weight"] for h in data[key]], sorted((h["weight"] for h in data[key]), reverse=True))

    def test_text_as_an_option(self):
        self.assertEqual(self.good("view", "--text", "the man saw"), self.good("view", "the man saw"))

    def test_words_links_as_text(self):
        text = self.good("view", "the man saw")
        self.assertNotIn("reading 1", text)
        self.assertIn("each word's links that stand out", text)
        self.assertIn("heads that look at a neighbour", text)
        self.assertIn("mha find", text)
        self.assertIn("there is no other word", self.good("view", "man"))

    def test_one_heads_table(self):
        for flags in ([], ["--special"], ["--pieces"], ["--pieces", "--special"]):
            data = json.loads(self.good("view", "--layer", "1", "--head", "2", "--json", *flags))
            self.assertEqual(len(data["weights"]), len(data["names"]))
            self.assertEqual("[CLS]" in data["names"], "--special" in flags)
            self.assertEqual("##scope" in data["names"], "--pieces" in flags)
            for row in data["weights"]:
                (self.assertAlmostEqual if "--special" in flags else self.assertLess)(sum(row), 1, **({"places": 5} if "--special" in flags else {}))
            text = self.good("view", "--layer", "1", "--head", "2", *flags)
            self.assertEqual("(rest)" in text, "--special" not in flags)
            for name, row in zip(data["names"], data["weights"]):
                line = next(line for line in text.split("\n") if line.startswith(name + " ") and re.search(r"\d\.\d\d", line))
                self.assertEqual(re.findall(r"\d\.\d\d", line)[0], f"{row[0]:.2f}")

    def test_layer_and_head(self):
        self.bad("view", "--layer", "1", says=["together"])
        self.bad("view", "--head", "1", says=["together"])
        self.bad("view", "--layer", "2", "--head", "0", says=["2", "2 layers"])
        self.bad("view", "--layer", "0", "--head", "4", says=["4", "4 heads"])
        self.bad("view", "--layer", "-1", "--head", "0")
        for number in ("x", "1.5", "99999999999999999999", "", "0x1"):
            self.bad("view", "--layer", number, "--head", "0", says=["--layer"])

    def test_flags(self):
        self.bad("view", "--words", "--pieces", says=["--words"])
        self.bad("view", "--special", "--no-special", says=["--special"])
        self.bad("view", "--measure", "beauty", says=["beauty", "entropy"])
        self.assertEqual(self.good("view", "--words", "--no-special"), self.good("view"))

    def test_a_change_is_compared_with_the_run_without(self):
        before, old = self.tables()
        for arguments in (["--temperature", "3"], ["--mask-word", "man"], ["--zero-head", "0.2"], ["--zero-head", "0.2", "--zero-head", "0.0"]):
            after, new = self.tables(*arguments)
            change, names = after["change"], after["names"]
            self.assertNotIn("change", before)
            self.assertLess(change["cosine"], 1 - 1e-6)
            self.assertGreater(change["cosine"], -1)
            pairs = [(h, q, k) for h in old for q in range(len(names)) for k in range(len(names)) if names[k] != "man" or "--mask-word" not in arguments]
            moved = max(abs(new[h][q][k] - old[h][q][k]) for h, q, k in pairs)
            first = change["links"][0]
            head, q, k = (first["layer"], first["head"]), names.index(first["from"]), names.index(first["to"])
            self.assertEqual((first["before"], first["after"]), (old[head][q][k], new[head][q][k]))
            self.assertAlmostEqual(abs(first["after"] - first["before"]), moved, places=6)
            best = {(h, q): [max((k for k in range(len(names)) if k != q), key=lambda k, t=t, q=q: t[h][q][k]) for t in (old, new)]
                    for h in old for q in range(len(names))}
            self.assertEqual((change["rows"], change["rows_moved"]), (len(best), sum(a != b for a, b in best.values())))
            text = self.good("view", *arguments)
            self.assertIn("what moved", text)
            self.assertIn(f"cosine {change['cosine']:.4f}", text)
            self.assertLessEqual(max(map(len, text.split("\n"))), 80)

    def test_what_a_change_does(self):
        _, old = self.tables("--special")
        sharp, flat = self.tables("--special", "--temperature", "0.05")[1], self.tables("--special", "--temperature", "1000000")[1]
        _, masked = self.tables("--special", "--mask-word", "telescope")
        data, zeroed = self.tables("--special", "--zero-head", "0.2")
        telescope = data["names"].index("telescope")
        for head, table in old.items():
            for row in range(len(table)):
                self.assertLess(max(table[row]), max(sharp[head][row]))
                for weight in flat[head][row]:
                    self.assertAlmostEqual(weight * sum(len(w) > 0 for w in data["names"]), 1, delta=1.2)  # words of several pieces count twice
                self.assertEqual(masked[head][row][telescope], 0)
                self.assertAlmostEqual(sum(masked[head][row]), 1, places=5)
            self.assertEqual(zeroed[head] == table, head[0] == 0, "only later layers see what a head gave")

    def test_changes_refused(self):
        for value in ("0", "-1", "x", "inf", "nan", "1x", "1e50"):
            self.bad("view", "--temperature", value, says=["--temperature"])
        self.bad("view", "--mask-word", "dog", says=["--mask-word", "dog", "telescope"])
        for value in ("5", "a.b", "1.", ".1", "1.2.3", "99999999999999999999.1"):
            self.bad("view", "--zero-head", value, says=["--zero-head", value])
        self.bad("view", "--zero-head", "2.0", says=["2", "2 layers"])
        self.bad("view", "--zero-head", "0.4", says=["4", "4 heads"])
        self.bad("view", "--zero-head", "0.1", "--temperature", "2", says=["--zero-head", "--temperature", "one thing"])

    def test_every_measure(self):
        for name in ("special", "entropy", "confidence", "previous", "next", "self", "distance"):
            data = json.loads(self.good("view", "--measure", name, "--json"))
            self.assertEqual(data["measure"]["name"], name)
            self.assertEqual([len(row) for row in data["measure"]["values"]], [data["heads"]] * data["layers"])
            self.assertIn("map: " + name, self.good("view", "--measure", name))

    def test_long_and_strange_texts_stay_in_the_terminal(self):
        for text in ("the man saw a telescope , " * 5, "the \u6771\u4eac man \U0001f600 saw e\u0301e\u0301 .", "x" * 300 + " man"):
            for flags in ([], ["--layer", "0", "--head", "0"]):
                for line in self.good("view", text, *flags).split("\n"):
                    if "x" * 80 not in line:  # a word is not broken
                        self.assertLessEqual(len(line), 80, line)


class Find(Command):
    ARGUMENTS = ("find", "--from", "telescope", "--to", "man")

    def test_json(self):
        heads = json.loads(self.good(*self.ARGUMENTS, "--json"))
        self.assertEqual(sorted((h["layer"], h["head"]) for h in heads), [(l, h) for l in range(2) for h in range(4)])
        for head in heads:
            self.assertEqual(list(head), ["layer", "head", "weight", "usual", "lift", "back", "usual_back", "lift_back"])
            self.assertTrue(0 <= head["weight"] <= 1 and 0 < head["usual"] < 1, head)
        weights = [head["weight"] for head in heads]
        self.assertEqual(weights, sorted(weights, reverse=True))

    def test_weights_are_those_of_the_table(self):
        for head in json.loads(self.good(*self.ARGUMENTS, "--json")):
            data = json.loads(self.good("view", "--json", "--layer", str(head["layer"]), "--head", str(head["head"])))
            names = data["names"]
            self.assertEqual(head["weight"], data["weights"][names.index("telescope")][names.index("man")])

    def test_text_says_the_same_as_json(self):
        rows = re.findall(r"^ +(\d+) +(\d+) +(\d\.\d+) +(\d\.\d+) ", self.good(*self.ARGUMENTS), re.M)
        heads = json.loads(self.good(*self.ARGUMENTS, "--json"))
        self.assertEqual([(int(l), int(h)) for l, h, _, _ in rows], [(h["layer"], h["head"]) for h in heads])
        for (_, _, weight, usual), head in zip(rows, heads):
            self.assertAlmostEqual(float(weight), head["weight"], delta=0.00051)
            self.assertAlmostEqual(float(usual), head["usual"], delta=0.00051)

    def test_lift_back_and_contrast_are_differences_of_weights(self):
        heads = {(h["layer"], h["head"]): h for h in json.loads(self.good(*self.ARGUMENTS, "--not", "astronomer", "--json"))}
        back = {(h["layer"], h["head"]): h for h in json.loads(self.good("find", "--from", "man", "--to", "telescope", "--json"))}
        rather = {(h["layer"], h["head"]): h for h in json.loads(self.good("find", "--from", "telescope", "--to", "astronomer", "--json"))}
        for head, numbers in heads.items():
            self.assertEqual((numbers["back"], numbers["usual_back"]), (back[head]["weight"], back[head]["usual"]))
            self.assertAlmostEqual(numbers["lift"], numbers["weight"] - numbers["usual"], places=6)
            self.assertAlmostEqual(numbers["lift_back"], back[head]["lift"], places=6)
            self.assertAlmostEqual(numbers["contrast"], numbers["weight"] - rather[head]["weight"], places=6)

    def test_sorted_by_what_is_asked_for(self):
        for by, key in (("weight", "weight"), ("lift", "lift"), ("contrast", "contrast"), ("back", "back"), ("lift-back", "lift_back")):
            numbers = [h[key] for h in json.loads(self.good(*self.ARGUMENTS, "--not", "saw", "--by", by, "--json"))]
            self.assertEqual(numbers, sorted(numbers, reverse=True), by)
        self.assertEqual(self.good(*self.ARGUMENTS, "--not", "saw"), self.good(*self.ARGUMENTS, "--not", "saw", "--by", "contrast"))
        self.assertIn("by lift-back", self.good(*self.ARGUMENTS, "--by", "lift-back"))

    def test_the_table_fits(self):
        for more in ([], ["--not", "saw"]):
            self.assertLessEqual(max(map(len, self.good(*self.ARGUMENTS, *more).split("\n"))), 80)

    def test_orders_that_cannot_be(self):
        self.bad(*self.ARGUMENTS, "--by", "contrast", says=["--by contrast", "--not"])
        self.bad(*self.ARGUMENTS, "--by", "beauty", says=["--by"])
        self.bad(*self.ARGUMENTS, "--not", "man", says=["--not", "--to"])
        self.bad(*self.ARGUMENTS, "--not", "cat", says=["--not", '"cat"'])
        self.bad("find", "--from", "man", "--to", "[SEP]", "--by", "lift", says=["--by lift", "usual"])

    def test_words(self):
        self.bad("find", "--from", "cat", "--to", "man", says=["--from", '"cat"', "The#1 man saw the#2 astronomer with a telescope ."])
        self.bad("find", "--from", "man", "--to", "the", says=["--to", '"the"', "the#1", "the#2"])
        self.bad("find", "--from", "man", "--to", "the#3", says=["the#3"])
        self.bad("find", "--from", "man", "--to", b"\xff", says=["UTF-8"])
        self.bad("find", "--from", "a\nb", "--to", "man", says=["a b"])
        self.assertNotEqual(self.good("find", "--from", "man", "--to", "the#1"), self.good("find", "--from", "man", "--to", "the#2"))
        self.assertEqual(self.good("find", "--from", "MAN", "--to", "Saw", "--json"), self.good("find", "--from", "man", "--to", "saw", "--json"))

    def test_what_has_no_usual_weight_is_null(self):
        self.assertEqual({h["usual"] for h in json.loads(self.good("find", "--from", "man", "--to", "[SEP]", "--json"))}, {None})
        far = json.loads(self.good("find", "--from", "saw", "--to", "man", "saw" + " ." * 34 + " man", "--json"))
        self.assertEqual({h["usual"] for h in far}, {None})
        self.assertIn("unknown", self.good("find", "--from", "man", "--to", "[SEP]"))


class Cache(Command):
    ARGUMENTS = ("find", "--from", "telescope", "--to", "man", "--json")

    def files(self):
        return sorted(pathlib.Path(self.cache, "mha").glob("*"))

    def test_is_written_and_used(self):
        first = self.good(*self.ARGUMENTS)
        (file,) = self.files()
        self.assertRegex(file.name, r"\Ausual-[0-9a-f]{16}\.json\Z")
        written = file.stat().st_mtime_ns
        self.assertEqual(self.good(*self.ARGUMENTS), first)
        self.assertEqual(file.stat().st_mtime_ns, written)

    def test_damage_is_repaired(self):
        first = self.good(*self.ARGUMENTS)
        (file,) = self.files()
        whole = file.read_bytes()
        data = json.loads(whole)
        number = data["usual"]["sums"][0]
        for damaged in (b"", b"{", whole[:1000], whole[:-100], b"null", b"[1]", b"\xff" * 100, b'{"format":1}',
                        whole.replace(b'"format":1', b'"format":2'), whole.replace(str(number).encode(), str(number + 1).encode(), 1),
                        json.dumps(data | {"usual": {"pairs": [], "sums": []}}).encode(), whole.replace(b'"pairs":[', b'"pairs":["x",')):
            self.assertNotEqual(damaged, whole)
            file.write_bytes(damaged)
            self.assertEqual(self.good(*self.ARGUMENTS), first, damaged[:50])
            self.assertEqual(file.read_bytes(), whole)
            self.assertEqual(self.files(), [file], "no draft is left behind")

    def test_another_model_has_another_file(self):
        self.good(*self.ARGUMENTS)
        config = json.loads(pathlib.Path(self.model, "config.json").read_text(encoding="utf-8"))
        self.write_model("config.json", json.dumps(config | {"layer_norm_eps": 1e-3}).encode())
        self.good(*self.ARGUMENTS)
        self.assertEqual(len(self.files()), 2)

    def test_a_cache_that_cannot_be_written_is_no_error(self):
        first = self.good(*self.ARGUMENTS)
        shutil.rmtree(self.cache)
        pathlib.Path(self.cache).write_text("a file where the folder should be", encoding="utf-8")
        self.assertEqual(self.good(*self.ARGUMENTS), first)
        self.assertEqual(self.good(*self.ARGUMENTS, XDG_CACHE_HOME=None, HOME=None), first)
        self.assertEqual(self.good(*self.ARGUMENTS, XDG_CACHE_HOME="/proc/nowhere"), first)


@unittest.skipUnless(default_model(), "the default model is not there (MHA_TEST_MODEL names its folder)")
class DefaultModel(Command):
    """Against transformers 5.24 with torch 2.13 on all-MiniLM-L6-v2: the strongest heads of each question, and their weights."""

    def setUp(self):
        super().setUp()
        self.model = default_model()

    def check(self, found, expected, key="weight"):
        self.assertEqual([(h["layer"], h["head"]) for h in found][:len(expected)], [(l, h) for l, h, _ in expected])
        for head, (_, _, weight) in zip(found, expected):
            self.assertAlmostEqual(head[key], weight, delta=1e-5)

    def test_the_telescope_question(self):
        data = json.loads(self.good("view", "--json"))
        self.assertEqual((data["layers"], data["heads"]), (6, 12))
        self.assertEqual(sorted((h["layer"], h["head"]) for h in data["reading1"]),
                         [(0, 0), (0, 6), (0, 10), (1, 5), (2, 5), (4, 0), (5, 2), (5, 7), (5, 11)])
        self.assertEqual(sorted((h["layer"], h["head"]) for h in data["reading2"]),
                         [(0, 3), (0, 4), (0, 9), (2, 2), (4, 3), (4, 4), (5, 3), (5, 4), (5, 5)])
        self.check(data["reading1"], [(5, 11, 0.38762936), (0, 10, 0.34502944)])
        self.check(data["telescope_man"], [(0, 3, 0.23442301), (0, 7, 0.13930373), (4, 10, 0.09036457)])
        self.check(data["telescope_astronomer"], [(5, 4, 0.59211874), (0, 1, 0.58103722), (5, 0, 0.35014111)])

    def test_the_cat_question(self):
        data = json.loads(self.good("view", "--json", "--text", "The cat sat on the mat because it was comfortable"))
        links = {(link["from"], link["to"]): link for link in data["links"]}
        for words, head in ((("sat", "cat"), (5, 11)), (("it", "mat"), (5, 3))):
            self.assertEqual((links[words]["layer"], links[words]["head"]), head)
            self.assertGreater(links[words]["weight"], 5 * links[words]["usual"])
        previous = data["previous_heads"][0]
        self.assertEqual((previous["layer"], previous["head"], previous["share"]), (0, 2, 1))
        self.assertGreater(previous["weight"], 0.99)

    def test_find(self):
        found = json.loads(self.good("find", "--from", "telescope", "--to", "man", "--json"))
        self.assertEqual(len(found), 72)
        self.check(found, [(0, 3, 0.23442301), (0, 7, 0.13930373), (4, 10, 0.09036457)])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
