#!/usr/bin/env python3
"""Runs the command `mha` as a user does and looks at exit codes, standard output and standard error.
Usage: command_test.py MHA TINY_BERT (the program; the small model of tests/data, to which a tokenizer is added here).

What needs the default model (MHA_TEST_MODEL, else the cache) is skipped without it, and says so. Standard library only.
"""

import json
import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

MHA, TINY_BERT = sys.argv[1:3]
TELESCOPE = "The man saw the astronomer with a telescope."
ESCAPE = "\x1b"


def default_model():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.environ.get("MHA_TEST_MODEL") or os.path.join(cache, "mha/models/all-MiniLM-L6-v2")
    return folder if os.path.exists(os.path.join(folder, "config.json")) else None


def tokenizer_json():
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] the man saw astronom ##er tele ##scope a with . , ##s".split()
    special = {name: {"id": name, "ids": [words.index(name)], "tokens": [name]} for name in ("[CLS]", "[SEP]")}
    frame = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
            "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {"type": "TemplateProcessing", "single": frame, "special_tokens": special},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                      "vocab": {word: i for i, word in enumerate(words)}}}


class Command(unittest.TestCase):
    """Each test has a cache folder of its own and the small model."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="mha_command_")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.cache = os.path.join(self.folder, "cache")
        self.model = os.path.join(self.folder, "tiny")
        os.mkdir(self.model)
        for name in ("config.json", "model.safetensors"):
            shutil.copy(os.path.join(TINY_BERT, name), self.model)
        self.write_model("tokenizer.json", json.dumps(tokenizer_json()).encode())

    def write_model(self, name, data):
        pathlib.Path(self.model, name).write_bytes(data)

    def environment(self, **changes):
        env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "MHA_ISA")}
        env.update(XDG_CACHE_HOME=self.cache, TERM="xterm-256color")
        env.update({k: v for k, v in changes.items() if v is not None})
        return {k: v for k, v in env.items() if changes.get(k, "") is not None}

    def run_mha(self, *arguments, model=True, **changes):
        command = [MHA, *arguments] + (["--model", self.model] if model else [])
        return subprocess.run(command, capture_output=True, env=self.environment(**changes), timeout=120, check=False)

    def good(self, *arguments, **keywords):
        done = self.run_mha(*arguments, **keywords)
        self.assertEqual((done.returncode, done.stderr), (0, b""), arguments)
        return done.stdout.decode()

    def bad(self, *arguments, code=2, says=(), **keywords):
        """Refused with `code`, nothing on standard output, and one line on standard error that says all of `says`."""
        done = self.run_mha(*arguments, **keywords)
        error = done.stderr.decode()
        self.assertEqual((done.returncode, done.stdout), (code, b""), (arguments, error))
        self.assertRegex(error, r"\Amha: [^\n]+\n\Z")
        for part in says:
            self.assertIn(part, error)
        return error

    def on_terminal(self, *arguments, **changes):
        """Standard output when it is a terminal."""
        master, slave = pty.openpty()
        with subprocess.Popen([MHA, *arguments, "--model", self.model], stdout=slave, stderr=slave, env=self.environment(**changes)) as process:
            os.close(slave)
            output = b""
            while True:
                try:
                    block = os.read(master, 65536)
                except OSError:  # Linux: the other side is closed
                    break
                if not block:
                    break
                output += block
        os.close(master)
        self.assertEqual(process.returncode, 0, output)
        return output.decode()


class General(Command):
    def test_version_and_help(self):
        self.assertRegex(self.good("--version", model=False), r"\Amha \d+\.\d+\.\d+\n\Z")
        for arguments in (["--help"], ["view", "--help"], ["find", "--help"], ["shapes", "--help"]):
            text = self.good(*arguments, model=False)
            self.assertIn("Examples:", text)
            self.assertIn("  mha ", text)

    def test_usage_errors(self):
        self.bad(model=False, says=["no command"])
        self.bad("bogus", model=False, says=['"bogus"', "view", "find", "shapes"])
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

    def test_other_texts_get_each_words_strongest_links(self):
        text = self.good("view", "the man saw")
        self.assertNotIn("reading 1", text)
        self.assertIn("each word's strongest links", text)
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
            self.assertEqual(list(head), ["layer", "head", "weight", "usual"])
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


class Shapes(Command):
    def walk(self, *arguments):
        return {step["name"]: step for step in json.loads(self.good("shapes", *arguments, "--json", model=False))}

    def test_the_papers_configuration(self):
        walk = self.walk("--d-model", "512", "--heads", "8", "--tokens", "2")
        expected = {"X": [1, 2, 512], "W_q": [512, 512], "W_k": [512, 512], "W_v": [512, 512], "Q": [1, 2, 8, 64], "K": [1, 2, 8, 64],
                    "V": [1, 2, 8, 64], "scores": [1, 8, 2, 2], "weights": [1, 8, 2, 2], "Z": [1, 2, 8, 64], "concat": [1, 2, 512],
                    "W_O": [512, 512], "output": [1, 2, 512]}
        self.assertEqual({name: step["shape"] for name, step in walk.items()}, expected)
        self.assertEqual(list(walk), list(expected))
        self.assertEqual((walk["W_q"]["one_head"], walk["Q"]["one_head"], walk["weights"]["one_head"]), ([512, 64], [2, 64], [2, 2]))

    def test_heads_narrower_groups(self):
        walk = self.walk("--d-model", "1024", "--heads", "16", "--head-dim", "128", "--kv-heads", "8", "--tokens", "3")
        self.assertEqual((walk["W_q"]["shape"], walk["W_k"]["shape"], walk["W_O"]["shape"]), ([1024, 2048], [1024, 1024], [2048, 1024]))
        self.assertEqual((walk["K"]["shape"], walk["concat"]["shape"], walk["output"]["shape"]), ([1, 3, 8, 128], [1, 3, 2048], [1, 3, 1024]))

    def test_text(self):
        for more in ([], ["--kv-heads", "2"], ["--kv-heads", "1", "--head-dim", "5"]):
            text = self.good("shapes", "--d-model", "512", "--heads", "8", "--tokens", "3", *more, model=False)
            self.assertIn("The output's shape equals the input's.", text)
            deviations = re.findall(r"(?:deviation|difference) ([0-9.e+-]+)\)", text)
            self.assertEqual(len(deviations), 3)
            for deviation in deviations:
                self.assertLess(float(deviation), 1e-5)
            self.assertLessEqual(max(map(len, text.split("\n"))), 80)
        text = self.good("shapes", "--d-model", "512", "--heads", "8", "--tokens", "2", model=False)
        self.assertRegex(text, r"W_q +weight +\[512, 512\] +\[512, 64\]")

    def test_refused(self):
        sizes = {"--d-model": "512", "--heads": "8", "--tokens": "2"}

        def refused(says=(), **changes):
            options = sizes | {"--" + name.replace("_", "-"): value for name, value in changes.items()}
            self.bad("shapes", *[part for option in options.items() for part in option], model=False, says=says)

        refused(heads="7", says=["512", "7"])
        refused(kv_heads="3", says=["8", "3"])
        for name in ("d_model", "heads", "tokens", "head_dim", "kv_heads"):
            for value in ("0", "-1", "x", "", "1e3", "99999999999999999999", "9223372036854775807"):
                if (name, value) != ("heads", "9223372036854775807"):
                    refused(**{name: value})
        refused(d_model="9223372036854775807", heads="9223372036854775807", tokens="9223372036854775807")
        refused(tokens="100000000", says=["GiB"])
        self.bad("shapes", "--d-model", "512", "--heads", "8", model=False, says=["--tokens"])


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

    def test_find(self):
        found = json.loads(self.good("find", "--from", "telescope", "--to", "man", "--json"))
        self.assertEqual(len(found), 72)
        self.check(found, [(0, 3, 0.23442301), (0, 7, 0.13930373), (4, 10, 0.09036457)])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
