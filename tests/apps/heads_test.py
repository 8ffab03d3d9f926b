#!/usr/bin/env python3
"""Runs `mha heads`: its numbers and roles against tables of weights that `mha view` prints, its three formats, sorting, and what it refuses.
Usage: heads_test.py MHA TINY_BERT (see mha_command.py).

What needs the default model (MHA_TEST_MODEL, else the cache) is skipped without it, and says so.
"""

import collections
import csv
import io
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import unittest

from mha_command import MHA, Command, conllu, default_model

TEXT = "the man saw the astronomers with a telescope . a man with the telescope , the astronomer saw"
TEXTS = [TEXT, "the man saw the telescope", "a man", "the astronomers saw a man with the telescope ."]
NUMBERS = ["stable", "entropy", "spread", "confidence", "distance", "previous", "next", "self", "special", "special_norm", "sink", "duplicate",
           "induction", "at_offset", "effect"]


def measures_of(tables):
    """The numbers of one head by plain sums over [(names, table)], and its role by the rules; special units are [CLS] and [SEP]."""
    sums, offsets, rows = collections.Counter(), collections.Counter(), 0
    for names, table in tables:
        n, special = len(names), [i for i, name in enumerate(names) if name.startswith("[")]
        for i in range(n):
            if i in special:
                continue
            row, rows = table[i], rows + 1
            entropy = -sum(w * math.log(w) for w in row if w > 0)
            sums.update({"entropy": entropy, "spread": entropy / math.log(n), "confidence": max(row[:-1]), "previous": row[i - 1], "next": row[i + 1],
                         "distance": sum(w * abs(i - j) for j, w in enumerate(row)), "self": row[i], "sink": row[0],
                         "special": sum(row[j] for j in special)})
            offsets[row.index(max(row)) - i] += 1
    means = {name: value / rows for name, value in sums.items()}
    offset, most = max(offsets.items(), key=lambda item: (item[1], -item[0]))
    means["at_offset"] = most / rows
    role = None
    if rows >= 5:
        if means["at_offset"] >= 0.9:
            role = {-1: "previous", 1: "next", 0: "at 0"}.get(offset, f"at {offset:+d}")
        elif means["special"] >= 0.5:
            role = "special"
        elif means["spread"] >= 0.9:
            role = "broad"
    return means, role, rows


class HeadsCommand(Command):
    def data(self, *arguments, **keywords):
        return json.loads(self.good("heads", *arguments, "--json", **keywords))

    def write(self, name, data):
        path = os.path.join(self.folder, name)
        pathlib.Path(path).write_bytes(data)
        return path

    def table(self, text, head, *more):
        where = ["--layer", str(head["layer"]), "--head", str(head["head"])]
        view = json.loads(self.good("view", text, "--special", "--json", *where, *more))
        return view["names"], view["weights"]

    def expect_plain(self, texts, data, heads, *more):
        for head in heads:
            tables = [self.table(text, head, *more) for text in texts]
            means, role, rows = measures_of(tables)
            self.assertEqual((head["rows"], head["role"]), (rows, role))
            for name, value in means.items():
                self.assertAlmostEqual(head[name], value, delta=2e-6 * (1 + value), msg=(name, head))
            alone = [measures_of([table]) for table in tables]
            judged = collections.Counter(role or "none" for _, role, rows in alone if rows >= 5)
            self.assertEqual(data["judged"], sum(judged.values()))
            self.assertEqual(set(head["roles"]), set(judged))
            for name, count in judged.items():
                self.assertAlmostEqual(head["roles"][name], count / data["judged"], places=6)
            if role is None:
                self.assertIsNone(head["stable"])
            else:
                self.assertAlmostEqual(head["stable"], judged[role] / data["judged"], places=6)


class Heads(HeadsCommand):
    def test_numbers_and_roles_are_those_of_the_weights(self):
        for more in ([], ["--pieces"]):
            data = self.data(TEXT, *more)
            self.assertEqual((data["texts"], data["cut"], data["skipped"], data["layers"], data["heads"]), (1, 0, 0, 2, 4))
            self.assertEqual([(h["layer"], h["head"]) for h in data["measured"]], [(layer, head) for layer in range(2) for head in range(4)])
            self.expect_plain([TEXT], data, data["measured"][::3], *more)

    def test_texts_are_added_up_by_rows(self):
        file = self.write("texts.txt", "\n".join(["", *TEXTS, " "]).encode())
        data = self.data("--file", file)
        self.assertEqual((data["texts"], data["skipped"], data["judged"]), (4, 2, 3))
        self.expect_plain(TEXTS, data, data["measured"][1::4])
        self.assertEqual(self.data(*TEXTS)["measured"], data["measured"])
        done = subprocess.run([MHA, "heads", "--file", "-", "--json", "--model", self.model], input="\n".join(TEXTS).encode(), capture_output=True,
                              env=self.environment(), timeout=120, check=True)
        self.assertEqual(json.loads(done.stdout)["measured"], data["measured"])

    def test_long_texts_are_cut_and_it_says_so(self):
        data = self.data("man " * 500)
        self.assertEqual((data["cut"], data["rows"]), (1, 38))
        self.assertEqual(data["measured"], self.data("man " * 38)["measured"])
        self.assertIn("1 text was longer than the 40 pieces", " ".join(self.good("heads", "man " * 39).split()))

    def test_formats_say_the_same(self):
        for texts, more in ((TEXTS, []), ([TEXT], ["--effect", "zero"])):
            data = self.data(*texts, *more)
            rows = list(csv.DictReader(io.StringIO(self.good("heads", *texts, *more, "--csv"))))
            self.assertEqual(list(rows[0]), ["layer", "head", "role", *NUMBERS])
            lines = self.good("heads", *texts, *more).split("\n")
            self.assertLessEqual(max(map(len, lines)), 80)
            names = next(line for line in lines if line.startswith(" head")).split()
            shown = [line.split(maxsplit=len(names) - 1) for line in lines if re.match(r" +\d+\.\d+ ", line)]
            self.assertEqual((len(rows), len(shown)), (8, 8))
            by_name = {"entr": "entropy", "conf": "confidence", "dist": "distance", "prev": "previous", "spec": "special", "norm": "special_norm",
                       "loo": "effect", "stab": "stable", "dup": "duplicate", "ind": "induction"}
            for head, row, cells in zip(data["measured"], rows, shown):
                self.assertEqual((row["layer"], row["head"], row["role"]), (str(head["layer"]), str(head["head"]), head["role"] or ""))
                for name in NUMBERS:
                    self.assertEqual(float(row[name]) if row[name] else None, head[name])
                self.assertEqual((cells[0], cells[-1]), (f"{head['layer']}.{head['head']}", head["role"] or "-"))
                for name, cell in list(zip(names, cells))[1:-1]:
                    value = head[by_name.get(name, name)]
                    self.assertEqual(cell, "-" if value is None else f"{value:.{4 if name == 'loo' else 2}f}")
            self.assertEqual("stab" in names, len(texts) > 1)
            self.assertEqual("loo" in names, bool(more))

    def test_sorted_by_any_number_and_by_role(self):
        heads = self.data(TEXT, "--effect", "zero")["measured"]
        for name in ("entropy", "special_norm", "sink", "effect", "at_offset"):
            got = self.data(TEXT, "--effect", "zero", "--sort", name)["measured"]
            self.assertEqual([head[name] for head in got], sorted((head[name] for head in heads), reverse=True))
        roles = [head["role"] for head in self.data(TEXT, "--sort", "role")["measured"]]
        self.assertEqual(roles, sorted(roles, key=lambda role: ["previous", "next", "special", "broad", None].index(role)))

    def test_relations_are_those_of_score(self):
        near = ["the DET 2 det", "man NOUN 3 nsubj", "saw VERB 0 root", "a DET 5 det", "telescope NOUN 3 obj", ". PUNCT 3 punct"]
        far = ["man NOUN 5 nsubj", ", PUNCT 1 punct", "the DET 4 det", "astronomers NOUN 1 appos", "saw VERB 0 root", "the DET 7 det", "man NOUN 5 obj"]
        files = ["--conllu", self.write("a.conllu", conllu(*[near, far] * 15)), "--dev", self.write("b.conllu", conllu(*[near, far, near] * 10))]
        score = json.loads(self.good("score", *files, "--json"))
        expected = {}
        for relation in score["relations"]:
            for one in relation["directions"] if relation["relation"] != "(all)" and relation["arcs"] >= 20 else []:
                if one["lift"]["low"] > 0:
                    expected.setdefault((one["layer"], one["head"]), {})[relation["relation"], one["attention"]] = (one["found"]["share"],
                                                                                                                  relation["baseline"]["share"])
        self.assertTrue(expected, "the small model finds no relation: the test shows nothing")
        roles = 0
        for head in self.data(TEXT, *files)["measured"]:
            found = {(r["relation"], r["direction"]): (r["accuracy"], r["baseline"]) for r in head["relations"]}
            wanted = expected.get((head["layer"], head["head"]), {})
            self.assertEqual(set(found), set(wanted))
            for name, shares in wanted.items():
                for value, share in zip(found[name], shares):
                    self.assertAlmostEqual(value, share, places=6)
            clear = [(found[name][0] - found[name][1], name) for name in found if found[name][0] - found[name][1] >= 0.1 and found[name][0] >= 0.5]
            if clear and not (head["role"] or "").startswith(("previous", "next", "at ")):
                relation, direction = max(clear)[1]
                self.assertEqual(head["role"], direction.replace("dep", relation))
                self.assertEqual([head["stable"]], [r["stable"] for r in head["relations"] if (r["relation"], r["direction"]) == (relation, direction)])
                roles += 1
        self.assertIn("Relations are reported on", self.good("heads", TEXT, *files))
        print(f"heads with a relation as role: {roles}")

    def test_effects_are_those_of_view(self):
        heads = self.data(TEXT, "--effect", "zero")["measured"]
        for head in heads[::3]:
            change = json.loads(self.good("view", TEXT, "--json", "--zero-head", f"{head['layer']}.{head['head']}"))["change"]
            self.assertAlmostEqual(head["effect"], 1 - change["cosine"], delta=2e-6)
        self.assertNotEqual([head["effect"] for head in self.data(*TEXTS, "--effect", "mean")["measured"]],
                            [head["effect"] for head in self.data(*TEXTS, "--effect", "zero")["measured"]])
        self.assertEqual({head["effect"] for head in self.data(TEXT)["measured"]}, {None})

    def test_what_is_not_known_is_said(self):
        data = self.data(TEXT)  # the small model knows too few words to make random text of
        self.assertEqual({head["induction"] for head in data["measured"]}, {None})
        self.assertIn("dup and ind are not known", self.good("heads", TEXT))
        few = self.data("a man")
        self.assertEqual((few["judged"], {head["role"] for head in few["measured"]}, {head["stable"] for head in few["measured"]}), (0, {None}, {None}))
        self.assertIn("\nfewer than 5 words: no roles\n", self.good("heads", "the man saw a"))
        self.assertNotIn("fewer than", self.good("heads", "the man saw a man"))
        self.assertIn("\nfewer than 5 pieces: no roles\n", self.good("heads", "the man saw a", "--pieces"))

    def test_without_texts_the_plain_sentences(self):
        sentences = pathlib.Path(__file__).parents[2].joinpath("data/plain_sentences.txt").read_text(encoding="utf-8").split("\n")
        count = sum(line != "" for line in sentences)
        self.assertEqual(self.data()["texts"], count)
        self.assertIn(f"the {count} plain sentences", " ".join(self.good("heads", "--help", model=False).split()))
        self.assertIn(f"of the {count} plain sentences that come with mha, spread evenly (--most {count}: all)",
                      " ".join(self.good("prune", "--help", model=False).split()))

    def test_progress_only_on_a_terminal(self):
        self.assertIn("2/2 texts", self.on_terminal("heads", "the man", "saw"))
        self.assertIn("1/1 texts, each head left out", self.on_terminal("heads", "the man", "--effect", "zero"))

    def test_threads_change_nothing(self):
        self.assertEqual(self.good("heads", TEXT, "--threads", "1"), self.good("heads", TEXT))

    def test_wrong_inputs(self):
        file = self.write("texts.txt", b"the man\nsaw \xff\n")
        self.bad("heads", "--file", file, says=["texts.txt, line 2", "UTF-8"])
        self.bad("heads", "the man", b"saw \xff", says=["text 2", "UTF-8"])
        self.bad("heads", "--file", self.write("empty.txt", b""), says=["empty.txt", "no text"])
        self.bad("heads", "", " ", says=["no text"])
        self.bad("heads", "--file", self.folder, says=[self.folder, "folder"])
        self.bad("heads", "--file", "/does/not/exist", says=["/does/not/exist"])
        self.bad("heads", "the man", "--file", file, says=["TEXT", "--file"])
        self.bad("heads", "--json", "--csv", "man", says=["--json", "--csv"])
        self.bad("heads", "man", "--sort", "beauty", says=["--sort"])
        self.bad("heads", "man", "--sort", "effect", says=["--effect"])
        self.bad("heads", "man", "--effect", "half", says=["--effect"])
        self.bad("heads", "man", "--conllu", file, says=["--conllu", "--dev"])
        self.bad("heads", "man", "--conllu", file, "--dev", file, says=["texts.txt", "one file"])
        self.bad("heads", "man", "--conllu", file, "--dev", self.write("dev.txt", b"no tree"), says=["dev.txt, line 1"])
        self.bad("heads", "man", "--conllu", "/does/not/exist", "--dev", file, says=["texts.txt"])
        self.bad("heads", "man", "--threads", "0", says=["--threads is 0"])
        self.bad("heads", "man", "--model", "/does/not/exist", model=False, says=["/does/not/exist"])


@unittest.skipUnless(default_model(), "the default model is not there (MHA_TEST_MODEL names its folder)")
class DefaultModel(HeadsCommand):
    def setUp(self):
        super().setUp()
        self.model = default_model()

    def test_numbers_and_roles_are_those_of_the_weights(self):
        texts = ["The man saw the astronomer with a telescope.", "Unbelievably, rehabilitation helped the neuroscientists."]
        data = self.data(*texts)
        self.assertEqual((data["texts"], data["layers"], data["heads"], len(data["measured"])), (2, 6, 12, 72))
        self.expect_plain(texts, data, data["measured"][2::17])

    def test_over_the_plain_sentences(self):
        heads = {(head["layer"], head["head"]): head for head in self.data()["measured"]}
        previous = heads[0, 2]  # looks at the word before, whatever it is
        self.assertEqual((previous["role"], previous["offset"]), ("previous", -1))
        self.assertGreater(previous["stable"], 0.95)
        roles = collections.Counter(head["role"] for head in heads.values())
        self.assertEqual(roles["previous"], 1)
        self.assertGreater(roles["special"], 20)
        self.assertGreater(roles[None], 20)
        special = [head for head in heads.values() if head["role"] == "special"]
        # They park weight there and carry little from it (Kobayashi et al. 2020).
        self.assertTrue(all(head["special_norm"] < head["special"] - 0.2 for head in special))
        self.assertTrue(all(0 <= head["induction"] <= 1 and 0 <= head["duplicate"] <= 1 for head in heads.values()))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
