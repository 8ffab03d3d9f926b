#!/usr/bin/env python3
"""Runs the commands about the layer itself: `mha shapes`, `mha explain`, `mha claims`, `mha verify`.
Usage: layer_commands_test.py MHA TINY_BERT (see mha_command.py). Needs NumPy.
"""

import json
import re
import sys
import unittest

import numpy as np

from mha_command import Command, default_model


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


class Explain(Command):
    def numbers(self, *arguments):
        return json.loads(self.good("explain", *arguments, "--json", model=False))

    def test_every_step_follows_from_the_one_before(self):
        for arguments in ([], ["the man saw the astronomer", "--d-model", "12", "--heads", "3"], ["a b c", "--d-model", "64", "--heads", "8"]):
            data = self.numbers(*arguments)
            x, outputs = np.array(data["x"]), []
            self.assertEqual(x.shape, (len(data["tokens"]), data["d_model"]))
            for head in data["by_head"]:
                part = {name: np.array(value, dtype=np.float64) for name, value in head.items()}
                for name in "qkv":
                    np.testing.assert_allclose(x @ part["w_" + name], part[name], atol=1e-5)
                np.testing.assert_allclose(part["q"] @ part["k"].T, part["q_k"], atol=1e-5)
                np.testing.assert_allclose(part["q_k"] / np.sqrt(data["head_dim"]), part["scores"], atol=1e-6)
                exponentials = np.exp(part["scores"])
                np.testing.assert_allclose(exponentials / exponentials.sum(-1, keepdims=True), part["weights"], atol=1e-6)
                np.testing.assert_allclose(part["weights"] @ part["v"], part["z"], atol=1e-5)
                outputs.append(part["z"])
            self.assertEqual(len(outputs), data["heads"])
            np.testing.assert_array_equal(np.concatenate(outputs, axis=1), np.array(data["concat"]))
            np.testing.assert_allclose(np.array(data["concat"]) @ np.array(data["w_o"]), np.array(data["output"]), atol=1e-5)
            self.assertEqual(np.array(data["output"]).shape, x.shape)

    def test_a_word_has_one_vector(self):
        data = self.numbers("bank money bank")
        self.assertEqual(data["x"][0], data["x"][2])
        self.assertNotEqual(data["x"][0], data["x"][1])

    def test_text_names_every_step_and_stays_in_the_terminal(self):
        text = self.good("explain", model=False)
        for formula in ("X: one row per token", "Q = X W_q", "K = X W_k", "V = X W_v", "Q K^T", "/ sqrt(head_dim)", "softmax(scores)", "Z = weights V",
                        "concat = [Z0 | Z1]", "output = concat W_O", "shape equals the input's"):
            self.assertIn(formula, text)
        for arguments in (["--d-model", "512", "--heads", "8"], ["a " * 30], ["--head", "1"], ["w" * 200 + " \x1b[31m"], ["--d-model", "30", "--heads", "15"]):
            text = self.good("explain", *arguments, model=False)
            self.assertLessEqual(max(map(len, text.split("\n"))), 80)
            self.assertNotIn("\x1b", text)

    def test_the_printed_numbers_are_those_of_json(self):
        data = self.numbers()
        text = self.good("explain", model=False)
        for head in data["by_head"]:
            for name in ("q", "weights", "z"):
                for row in head[name]:
                    self.assertRegex(text, " +".join(re.escape(f"{value:.3f}") for value in row))

    def test_following_one_head(self):
        text = self.good("explain", "--head", "1", model=False)
        self.assertNotIn("head 0\n", text)
        for part in ("W_q of head 1", "W_k", "from head 1: Z times rows 4 to 7 of W_O"):
            self.assertIn(part, text)
        data = self.numbers()
        share = np.array(data["by_head"][1]["z"]) @ np.array(data["w_o"])[4:]
        self.assertRegex(text, " +".join(re.escape(f"{value:.3f}") for value in share[0]))

    def test_refused(self):
        self.bad("explain", "--heads", "3", model=False, says=["8", "3"])
        self.bad("explain", "--head", "2", model=False, says=["--head", "2 heads"])
        self.bad("explain", "--head", "-1", model=False, says=["--head"])
        self.bad("explain", " ", model=False, says=["no word"])
        for name in ("--d-model", "--heads"):
            for value in ("0", "-4", "x", "9223372036854775807"):
                self.bad("explain", name, value, model=False)


class Claims(Command):
    def test_what_a_model_does_not_do_is_false_and_the_exit_code_says_so(self):
        done = self.run_mha("claims", "--json")  # random weights: no head holds a reading
        self.assertEqual((done.returncode, done.stderr), (1, b""))
        claims = json.loads(done.stdout)
        of_model = [claim["claim"] for claim in claims][-2:]
        self.assertEqual([claim["claim"] for claim in claims if not claim["holds"]], of_model)
        self.assertTrue(of_model[0].startswith("Two heads of one layer of tiny"))
        self.assertGreaterEqual(len(claims), 12)
        text = self.run_mha("claims").stdout.decode()
        self.assertIn("FALSE  Two heads of one layer", text)
        self.assertIn(f"{len(claims) - 2} of {len(claims)} claims are true", text)

    def test_without_a_model_the_mechanism_is_still_measured(self):
        text = self.good("claims", model=False)
        self.assertIn("Nothing was asked of a trained model", text)
        self.assertRegex(text, r"(\d+) of \1 claims are true")
        figures = {claim["claim"]: claim["figures"] for claim in json.loads(self.good("claims", "--json", model=False))}
        costs = next(lines for claim, lines in figures.items() if claim.startswith("H heads"))
        table = [line.split() for line in costs[2:]]
        self.assertEqual([row[0] for row in table], ["1", "2", "4", "8", "16"])
        self.assertEqual({(row[1], row[2]) for row in table}, {(str(4 * 512 * 512), f"{(2 * 256 * 4 * 512**2 + 4 * 256**2 * 512) / 1e6:.1f}")})
        self.assertEqual([int(row[3]) for row in table], [256**2 * int(row[0]) for row in table])
        caches = next(lines for claim, lines in figures.items() if claim.startswith("The key/value cache"))
        self.assertEqual([int(re.search(r"(\d+) bytes", line)[1]) for line in caches], [512, 1024, 2048, 4096])
        self.bad("claims", "--model", "/does/not/exist", model=False, says=["/does/not/exist"])

    @unittest.skipUnless(default_model(), "the default model is not there (MHA_TEST_MODEL names its folder)")
    def test_all_are_true_of_the_default_model(self):
        self.model = default_model()
        claims = json.loads(self.good("claims", "--json"))
        self.assertEqual([claim["claim"] for claim in claims if not claim["holds"]], [])


class Verify(Command):
    def run_json(self, *arguments, **changes):
        return json.loads(self.good("verify", *arguments, "--json", model=False, **changes))

    def test_every_isa_and_dtype_is_held_to_its_limit(self):
        data = self.run_json("--problems", "60", "--seed", "3")
        self.assertEqual((data["seed"], data["problems"], data["failed"], data["failures"]), (3, 60, 0, []))
        names = {entry["isa"] for entry in data["isas"]}
        self.assertLessEqual({"scalar", "reference"}, names)
        for name in names:
            mine = [entry for entry in data["isas"] if entry["isa"] == name]
            self.assertEqual({entry["dtype"] for entry in mine}, {"f32", "bf16", "f16"})
            self.assertEqual(sum(entry["problems"] for entry in mine), 60)
        for entry in data["isas"]:
            for quantity in ("out", "weights", "lse"):
                self.assertLessEqual(entry[quantity]["error"], entry[quantity]["limit"])
                # An error of exactly 0 over many problems would mean that something is compared with itself.
                self.assertGreater(entry[quantity]["error"], 0)

    def test_a_seed_repeats_a_run_and_runs_differ(self):
        first = self.good("verify", "--problems", "5", "--seed", "9", model=False)
        self.assertEqual(first, self.good("verify", "--problems", "5", "--seed", "9", model=False))
        self.assertIn("mha verify --seed 9 --problems 5", first)
        self.assertIn("all within their limits", first)
        self.assertNotEqual(self.run_json("--problems", "1")["seed"], self.run_json("--problems", "1")["seed"])

    def test_refused(self):
        self.bad("verify", "--problems", "0", model=False, says=["--problems", "0"])
        self.bad("verify", "--seed", "-1", model=False, says=["--seed"])
        self.bad("verify", "--seed", "x", model=False, says=["--seed"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
