#!/usr/bin/env python3
"""Runs `mha score`: its shares against a plain computation from the tables that `mha view` prints, what it counts, and what it refuses.
Usage: score_test.py MHA TINY_BERT (see mha_command.py). The sentences are this test's own.

What needs the default model (MHA_TEST_MODEL, else the cache) or ../shared is skipped without it, and says so.
"""

import collections
import itertools
import json
import os
import pathlib
import re
import sys
import unittest

from mha_command import Command, conllu, default_model

TREEBANKS = pathlib.Path(__file__).resolve().parents[3] / "shared/data/ud_english_ewt"
# Words as "form UPOS head relation".
SAW = ["the DET 2 det", "man NOUN 3 nsubj", "saw VERB 0 root", "a DET 5 det", "telescope NOUN 3 obj", "with ADP 8 case", "the DET 8 det",
       "astronomers NOUN 3 obl"]
OF = ["man NOUN 2 nsubj", "saw VERB 0 root", "the DET 4 det", "astronomer NOUN 2 obj", "with ADP 7 case", "a DET 7 det", "telescope NOUN 4 nmod"]
SHORT = ["man NOUN 2 nsubj", "saw VERB 0 root", "telescopes NOUN 2 obj"]
ALSO = ["a DET 2 det", "telescope NOUN 0 root", ", PUNCT 5 punct", "the DET 5 det", "man NOUN 2 appos"]


def arcs_of(words):
    """(relation, dependent, head) of all words but the root, counted from 0."""
    split = [word.split(" ") for word in words]
    return [(relation, i, int(head) - 1) for i, (_, _, head, relation) in enumerate(split) if head != "0"]


def first_largest(values, but):
    return max((i for i in range(len(values)) if i != but), key=lambda i: (values[i], -i))


class ScoreCommand(Command):
    def write(self, name, data):
        path = os.path.join(self.folder, name)
        pathlib.Path(path).write_bytes(data)
        return path

    def data(self, *arguments, **keywords):
        return json.loads(self.good("score", *arguments, "--json", **keywords))

    def tables(self, words, layers, heads):
        """{(layer, head): words x words} as `mha view` shows them."""
        text, tables = " ".join(word.split(" ")[0] for word in words), {}
        for layer, head in itertools.product(range(layers), range(heads)):
            view = json.loads(self.good("view", text, "--layer", str(layer), "--head", str(head), "--json"))
            self.assertEqual(len(view["weights"]), len(words), view["names"])
            tables[layer, head] = view["weights"]
        return tables

    def plain_counts(self, sentences):
        """{relation: {(direction, layer, head): found}}, {relation: arcs}, and the same of attachment cases, from tables."""
        found, arcs, cases = collections.defaultdict(collections.Counter), collections.Counter(), collections.Counter()
        for words in sentences:
            for (layer, head), table in self.tables(words, 2, 4).items():
                for relation, i, j in arcs_of(words):
                    for name in (relation, "(all)"):
                        found[name]["dep->head", layer, head] += first_largest(table[i], i) == j
                        found[name]["head->dep", layer, head] += first_largest([row[i] for row in table], i) == j
                for viewpoint, at in (("preposition", {SAW[0]: 5, OF[0]: 4}), ("object", {SAW[0]: 7, OF[0]: 6})):
                    if words in (SAW, OF):
                        verb, noun = (2, 4) if words == SAW else (1, 3)
                        row = table[at[words[0]]]
                        cases[viewpoint, layer, head] += (row[verb] > row[noun]) == (words == SAW)
            for relation, _, _ in arcs_of(words):
                arcs[relation] += 1
                arcs["(all)"] += 1
        return found, arcs, cases


class Score(ScoreCommand):
    def test_shares_are_those_of_the_tables(self):
        dev, test = [SAW, SHORT, OF, ALSO], [OF, ALSO, SAW, SAW, SHORT]
        data = self.data("--conllu", self.write("test.conllu", conllu(*test)), "--dev", self.write("dev.conllu", conllu(*dev)))
        self.assertFalse(data["chosen_on_the_same_file"])
        dev_found, _, dev_cases = self.plain_counts(dev)
        found, arcs, cases = self.plain_counts(test)
        self.assertEqual({r["relation"]: r["arcs"] for r in data["relations"]}, dict(arcs))
        self.assertEqual(data["relations"][0]["relation"], "(all)")
        for relation in data["relations"]:
            name = relation["relation"]
            for one in relation["directions"]:
                where = one["attention"], one["layer"], one["head"]
                best = max((count, -k[1], -k[2]) for k, count in dev_found[name].items() if k[0] == where[0])
                self.assertEqual((one["chosen"]["right"], -where[1], -where[2]), best, name)
                self.assertEqual((one["found"]["right"], one["found"]["of"]), (found[name][where], arcs[name]), (name, where))
                self.assertAlmostEqual(one["lift"]["value"], one["found"]["share"] - relation["baseline"]["share"])
                self.assertLessEqual(one["found"]["low"], one["found"]["share"])
                self.assertLessEqual(one["lift"]["low"], one["lift"]["value"])
                self.assertLessEqual(one["lift"]["value"], one["lift"]["high"])
            offsets = collections.Counter(j - i for words in dev for r, i, j in arcs_of(words) if name in (r, "(all)"))
            self.assertEqual(offsets[relation["offset"]], max(offsets.values()), name)
            right = sum(j - i == relation["offset"] for words in test for r, i, j in arcs_of(words) if name in (r, "(all)"))
            self.assertEqual(relation["baseline"]["right"], right, name)
        attachment = data["attachment"]
        self.assertEqual([attachment[key] for key in ("verbs", "nouns", "chosen_verbs", "chosen_nouns")], [2, 1, 1, 1])
        for one in attachment["viewpoints"]:
            where = one["viewpoint"], one["layer"], one["head"]
            self.assertEqual((one["found"]["right"], one["chosen"]["right"]), (cases[where], dev_cases[where]))
            self.assertEqual(one["of_verbs"]["right"] + one["of_nouns"]["right"], one["found"]["right"])

    def test_without_dev_it_says_that_it_flatters(self):
        file = self.write("test.conllu", conllu(SAW, OF, SHORT))
        data = self.data("--conllu", file)
        self.assertTrue(data["chosen_on_the_same_file"])
        for relation in data["relations"]:
            self.assertEqual({one["found"]["low"] for one in relation["directions"]} | {one["lift"]["high"] for one in relation["directions"]}, {None})
        out = self.good("score", "--conllu", file, "--least", "1")
        self.assertIn("OPTIMISTIC", out)
        self.assertNotIn("*", out)
        self.assertNotIn("OPTIMISTIC", self.good("score", "--conllu", file, "--dev", self.write("dev.conllu", conllu(SAW, OF, SHORT))))
        link = os.path.join(self.folder, "link.conllu")
        os.symlink(file, link)
        for same in (file, link, os.path.join(self.folder, ".", "test.conllu")):
            self.assertEqual(self.good("score", "--conllu", file, "--dev", same, "--least", "1"), out)

    def test_table_says_what_json_says(self):
        files = ["--conllu", self.write("test.conllu", conllu(OF, ALSO, SAW)), "--dev", self.write("dev.conllu", conllu(SAW, SHORT, OF))]
        data, out = self.data(*files), self.good("score", *files, "--least", "1")
        self.assertLessEqual(max(len(line) for line in out.split("\n") if self.folder not in line), 80)  # a path is not broken
        for relation in data["relations"]:
            if not relation["directions"]:
                self.assertRegex(out, rf"no head: .*{relation['relation']}")
                continue
            best = next(one for one in relation["directions"] if one["attention"] == relation["best"])
            row = re.search(rf"^{re.escape(relation['relation'])} +(.*)$", out, re.MULTILINE)[1].split()
            self.assertEqual(row[:4], [str(relation["arcs"]), best["attention"], f"{best['layer']}.{best['head']}", f"{100 * best['found']['share']:.1f}"])
            self.assertEqual(row[5:7], [f"{relation['offset']:+}", f"{100 * relation['baseline']['share']:.1f}"])
        self.assertIn("Fewer than 20 arcs (in --json): (all), det", " ".join(self.good("score", *files).split()))

    def test_what_cannot_be_used_is_counted(self):
        odd = conllu(SAW, ["man NOUN 2 dep", "saw VERB 1 dep"], ["man NOUN 0 root", "saw VERB 0 root"], ["man NOUN 9 dep", "saw VERB _ dep", "a DET 2 _"],
                     ["man NOUN 0 root"] + ["man NOUN 1 dep"] * 38)
        odd += b"1-2\tman\xe2\x80\x99saw\t_\t_\t_\t_\t_\t_\t_\t_\n" + conllu(["man NOUN 0 root", "saw VERB 1 dep", "\u200b X 1 dep", "a DET 1 det"])
        odd += b"1-2\tsawman\t_\t_\t_\t_\t_\t_\t_\t_\n" + conllu(["saw VERB 0 root", "man NOUN 1 obj", "telescopes NOUN 2 dep"]).replace(
            b"\n\n", b"\n3.1\tman\t_\t_\t_\t_\t_\t_\t_\t_\n\n")
        file = self.write("odd.conllu", odd)
        counts = self.data("--conllu", file)["file"]
        expected = {"sentences": 7, "sentences_scored": 4, "cyclic_sentences": 1, "several_roots_sentences": 1, "too_long_sentences": 1,
                    "missing_heads": 1, "heads_beyond": 1, "missing_relations": 1, "multiword_tokens": 2, "empty_nodes": 1,
                    "words_of_several_pieces": 3, "words_sharing_pieces": 4, "words_without_pieces": 1}
        for name, value in expected.items():
            self.assertEqual(counts[name], value, name)
        self.assertEqual(counts["words"], sum(counts[name] for name in ("words_scored",)) + 2 + 2 + 39)
        out = " ".join(self.good("score", "--conllu", file).split())
        for told in ("1 sentences left out: cycle of heads", "1 sentences left out: several roots", "4 words sharing a piece", "1 words that the tokenizer"):
            self.assertIn(told, out)

    def test_threads_change_nothing(self):
        file = self.write("test.conllu", conllu(*[SAW, OF, SHORT, ALSO] * 10))
        most = min(2, os.cpu_count())
        self.assertEqual(self.data("--conllu", file, "--threads", "1"), self.data("--conllu", file, "--threads", str(most)))

    def test_refused(self):
        good = self.write("good.conllu", conllu(SAW))
        self.bad("score", says=["--conllu"])
        self.bad("score", "--conllu", "nowhere.conllu", says=["nowhere.conllu"])
        self.bad("score", "--conllu", self.folder, says=["is a folder"])
        self.bad("score", "--conllu", self.write("x", b"no tree\n"), says=["line 1", "1 columns, must be 10"])
        self.bad("score", "--conllu", good, "--dev", self.write("late", conllu(SAW, OF) + b"1\tman\n"), says=["late, line 18"])
        self.bad("score", "--conllu", self.write("empty", b""), says=["empty: no sentence that can be scored"])
        self.bad("score", "--conllu", self.write("root", conllu(["man NOUN 0 root"])), says=["no arc that can be scored"])
        odd = [["man NOUN 2 dep", "saw VERB 1 dep"], ["man NOUN 0 root", "saw VERB 0 root"], ["saw VERB 0 root", "saw VERB 0 root"]]
        self.bad("score", "--conllu", self.write("odd", conllu(*odd)),
                 says=["odd: no sentence that can be scored (sentences read: 3; 1 sentences left out: cycle of heads; 2 sentences left out: several roots)"])
        self.bad("score", "--conllu", self.write("long", conllu(["man NOUN 0 root"] + ["man NOUN 1 dep"] * 38)),
                 says=["long: no arc that can be scored (sentences read: 1; 1 sentences left out: longer than the model reads)"])
        self.bad("score", "--conllu", good, "--threads", "0", says=["--threads is 0"])

    def test_progress_is_shown_on_a_terminal_only(self):
        file = self.write("test.conllu", conllu(*[SAW] * 40))
        self.assertIn("40/40 sentences", self.on_terminal("score", "--conllu", file))


@unittest.skipUnless(default_model(), "the default model is not there")
@unittest.skipUnless(TREEBANKS.exists(), "../shared/data/ud_english_ewt is not there")
class RealSentences(ScoreCommand):
    def test_the_first_sentences_of_ud_english_ewt(self):
        """Counts and baselines against a plain reading of the columns; everything else has its test above."""
        parts = {}
        for name in ("dev", "test"):
            text = (TREEBANKS / f"en_ewt-ud-{name}.conllu").read_bytes()
            parts[name] = b"\n\n".join(text.split(b"\n\n")[:50]) + b"\n\n"
        files = {name: self.write(name, part) for name, part in parts.items()}
        data = self.data("--conllu", files["test"], "--dev", files["dev"], "--model", default_model(), model=False)
        for key, name in (("file", "test"), ("dev", "dev")):
            rows = [line.split(b"\t") for line in parts[name].split(b"\n") if re.match(rb"\d+\t", line)]
            counts = data[key]
            self.assertEqual((counts["sentences"], counts["words"]), (50, len(rows)))
            arcs = sum(row[6] != b"0" for row in rows)
            if name == "test":
                self.assertEqual(sum(r["arcs"] for r in data["relations"][1:]) + counts["arcs_lost"], arcs)
            self.assertLess(counts["arcs_lost"], 0.05 * arcs)
            self.assertEqual((counts["cyclic_sentences"], counts["too_long_sentences"], counts["words_without_pieces"]), (0, 0, 0))
        det = next(r for r in data["relations"] if r["relation"] == "det")
        self.assertGreater(max(one["found"]["share"] for one in det["directions"]), det["baseline"]["share"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
