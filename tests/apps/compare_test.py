#!/usr/bin/env python3
"""Runs `mha compare`: texts alike and different, what it sorts by, its formats, what it refuses. The numbers are held by
tests/analysis/patching_test.cpp.
Usage: compare_test.py MHA TINY_BERT (see mha_command.py).
"""

import json
import re
import unittest

from mha_command import Command

A = "the man saw the astronomers"
B = "the man saw the telescope"


class Compare(Command):
    def data(self, *arguments):
        return json.loads(self.good("compare", *arguments, "--json"))

    def test_a_text_with_itself(self):
        data = self.data(A, A)
        self.assertEqual((data["a"], data["b"], data["matched_by"], len(data["heads"])), (A, A, "position", 8))
        self.assertAlmostEqual(data["cosine"], 1, delta=1e-12)
        for head in data["heads"]:
            self.assertEqual((head["towards"], head["weights"]), (0, 0))
            self.assertAlmostEqual(head["moved"], 0, delta=1e-12)
            for a, b in head["measures"].values():
                self.assertEqual(a, b)
        self.assertIn("all alike", self.good("compare", A, A))

    def test_measures_are_those_of_view(self):
        data = self.data(A, B)
        for name in ("entropy", "special"):
            for i, text in enumerate((A, B)):
                values = json.loads(self.good("view", text, "--measure", name, "--json"))["measure"]["values"]
                for head in data["heads"]:
                    self.assertAlmostEqual(head["measures"][name][i], values[head["layer"]][head["head"]], delta=1e-6)

    def test_sorted(self):
        by_head = self.data(A, B, "--sort", "head")["heads"]
        self.assertEqual([(h["layer"], h["head"]) for h in by_head], [(layer, head) for layer in range(2) for head in range(4)])
        for name in ("towards", "moved", "weights"):
            order = sorted(by_head, key=lambda head, name=name: -head[name])
            self.assertEqual(self.data(A, B, "--sort", name)["heads"], order)
            self.assertNotEqual(order, by_head)
        self.assertEqual(self.data(A, B), self.data(A, B, "--sort", "towards"))

    def test_table_says_what_json_says(self):
        heads, table = self.data(A, B)["heads"], self.good("compare", A, B)
        self.assertLessEqual(max(map(len, table.splitlines())), 80)
        self.assertIn("astronomers -> telescope", table)
        rows = [line.split() for line in table.splitlines() if re.match(r" +\d+ +\d+ ", line)]
        self.assertEqual([row[:5] for row in rows], [[str(h["layer"]), str(h["head"]), f"{h['towards']:+.4f}", f"{h['moved']:.4f}",
                                                      f"{h['weights']:.3f}"] for h in heads])

    def test_texts_of_other_lengths(self):
        longer = "the man with a telescope saw"
        data = self.data("the man saw", longer)
        self.assertEqual(data["matched_by"], "sequence")
        self.assertEqual(data["words"], [["[CLS]", "[CLS]"], ["the", "the"], ["man", "man"], ["saw", "saw"], ["[SEP]", "[SEP]"]])
        text = " ".join(self.good("compare", "the man saw", longer).split())
        self.assertIn("only in A: none; only in B: with a telescope", text)
        strangers = self.data("saw", "the man")
        self.assertEqual({head["weights"] for head in strangers["heads"]}, {None})
        self.assertIn(" - ", self.good("compare", "saw", "the man"))

    def test_wrong_inputs(self):
        self.bad("compare", A, says=["TEXT_B"])
        self.bad("compare", A, " ", says=["TEXT_B", "no word"])
        self.bad("compare", b"saw \xff", A, says=["TEXT_A", "UTF-8"])
        self.bad("compare", A, "man " * 100, says=["102", "40"])
        self.bad("compare", A, B, "--sort", "beauty", says=["--sort"])
        self.bad("compare", A, B, "--model", "/does/not/exist", model=False, says=["/does/not/exist"])


if __name__ == "__main__":
    unittest.main(argv=[__file__], verbosity=2)
