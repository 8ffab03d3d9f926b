#!/usr/bin/env python3
"""Runs `mha bench` on tiny problems: what it prints, what --explain says, what is refused. No figure is asserted but that figures belong
together. Usage: bench_test.py MHA TINY_BERT (see mha_command.py)."""

import json
import os
import sys
import unittest

from mha_command import Command

SPREAD = ["median", "q1", "q3", "min", "max"]
TINY = ["--length", "70", "--heads", "4", "--kv-heads", "2", "--head-dim", "8", "--d-model", "32"]


class Bench(Command):
    def bench(self, *arguments, **keywords):
        return self.good("bench", *arguments, model=False, **keywords)

    def data(self, *arguments, **keywords):
        return json.loads(self.bench(*arguments, "--json", **keywords))

    def refused(self, *arguments, says=()):
        self.bad("bench", *arguments, model=False, says=says)

    def assert_spread(self, spread):
        self.assertEqual(list(spread), SPREAD)
        self.assertTrue(0 < spread["min"] <= spread["q1"] <= spread["median"] <= spread["q3"] <= spread["max"], spread)

    def test_rows(self):
        data = self.data("--only", "attention", *TINY[:8], "--dtype", "f32")
        self.assertEqual((data["threads"], data["clock"], data["limits"]), (1, "thread CPU time", []))
        self.assertEqual([row["causal"] for row in data["rows"]], [False, True])
        for row in data["rows"]:
            self.assertEqual([row[name] for name in ("group", "dtype", "batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim")],
                             ["attention", "f32", 1, 4, 2, 70, 70, 8])
            for name in ("ms", "gflops", "limit", "percent_of_limit"):
                self.assert_spread(row[name])
            pairs = 70 * 71 / 2 if row["causal"] else 70 * 70
            self.assertAlmostEqual(row["gflops"]["median"] * row["ms"]["median"] * 1e6 / (4 * 4 * 8 * pairs), 1, delta=1e-4)

    def test_decode_is_measured_against_what_bounds_it(self):
        for row in self.data("--only", "decode", "--length", "300", "--queries", "1", "--heads", "2", "--kv-heads", "2", "--head-dim", "16")["rows"]:
            self.assertEqual((row["q_len"], row["kv_len"]), (1, 300))
            if "gbs" in row:
                work = 2 * 2 * 300 * 16 * (4 if row["dtype"] == "f32" else 2) / 1e9
                self.assertAlmostEqual(row["gbs"]["median"] * row["ms"]["median"] / 1e3 / work, 1, delta=1e-4)
            else:
                self.assertIn("gflops", row)

    def test_layer(self):
        (row,) = self.data("--only", "layer", *TINY)["rows"]
        self.assertEqual((row["group"], row["d_model"], row["q_len"]), ("layer", 32, 70))
        work = 2 * 70 * 32 * 2 * (4 + 2) * 8 + 4 * 4 * 8 * 70 * 70
        self.assertAlmostEqual(row["gflops"]["median"] * row["ms"]["median"] * 1e6 / work, 1, delta=1e-4)

    def test_statistics(self):
        data = self.data("--only", "statistics", *TINY[:8])
        self.assertEqual(data["rows"], [])
        self.assertEqual([row["causal"] for row in data["statistics"]], [False, True])
        for row in data["statistics"]:
            self.assertEqual((row["group"], row["dtype"], row["kv_heads"], row["kv_len"]), ("statistics", "f32", 2, 70))
            self.assert_spread(row["ms"])
            self.assertEqual(list(row["beside_plain"]), ["statistics", "links_8", "links_32", "received", "map"])
            for spread in row["beside_plain"].values():
                self.assert_spread(spread)

    def test_text(self):
        text = self.bench(*TINY, "--queries", "2", "--dtype", "f32", "--full")
        for line in ("limits of this machine", "multiply-adds, scalar", "reading DRAM", "attention: batch 1, 4 heads over 2",
                     "decode: batch 1, 4 heads over 2, d8", "f32, 2 queries, 70 keys", "layer: batch 1, f32", "d_model 32, 70 tokens",
                     "statistics: batch 1, 4 heads over 2", "8 links", "f32 full d8, 70"):
            self.assertIn(line, text)
        self.assertIn("1 thread, timed by its own CPU time", text)
        self.assertLessEqual(max(map(len, text.split("\n"))), 80)
        self.assertNotIn("\033", text)

    def test_the_reference_has_no_limit(self):
        data = self.data("--only", "attention", *TINY[:8], "--dtype", "f32", MHA_ISA="reference")
        self.assertEqual(data["isa"], "reference")
        for row in data["rows"]:
            self.assertNotIn("limit", row)
            self.assert_spread(row["ms"])
        self.assertIn("no limit known", self.bench("--only", "attention", *TINY[:8], "--dtype", "f32", MHA_ISA="reference"))

    def test_threads(self):
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("this process may use one core only")
        data = self.data("--only", "attention", *TINY[:8], "--dtype", "bf16", "--causal", "--threads", "2")
        self.assertEqual((data["threads"], data["clock"]), (2, "wall time"))
        self.assertEqual([(row["dtype"], row["causal"]) for row in data["rows"]], [("bf16", True)])

    def test_explain(self):
        text = self.bench("--only", "decode", "--queries", "1", "--length", "4096", "--dtype", "f32", "--explain", MHA_ISA="scalar")
        for line in ("isa       scalar", "strategy  ", "tiles     ", "copies    ", "tasks     ", "scratch   "):
            self.assertIn(line, text)
        for plan in self.data("--explain", MHA_ISA="scalar")["plans"]:
            self.assertIn(plan["strategy"], ("panels", "few rows"))
            self.assertGreaterEqual(plan["splits"] * plan["split_keys"], plan["kv_len"])
            self.assertEqual(plan["tasks"] % (plan["batch"] * plan["kv_heads"] * plan["splits"]), 0)
            self.assertEqual(plan["workers"], 1)
            self.assertGreater(plan["scratch"], 0)
        self.assertIn("no plan", self.bench("--only", "layer", "--explain", MHA_ISA="reference"))

    def test_explain_needs_no_memory_for_the_problem(self):
        (plan,) = self.data("--only", "decode", "--queries", "1", "--length", "1000000", "--dtype", "f32", "--heads", "4", "--kv-heads", "1",
                            "--explain")["plans"]
        self.assertEqual(plan["kv_len"], 1000000)

    def test_bar_on_a_terminal_only(self):
        self.assertNotIn("[#", self.bench("--only", "layer", *TINY))  # and `good` has seen that standard error is empty
        self.assertIn("1/1 layer d_model 32", self.on_terminal("bench", "--only", "layer", *TINY, model=False))

    def test_refused(self):
        for name in ("--length", "--queries", "--heads", "--kv-heads", "--head-dim", "--d-model", "--batch", "--threads"):
            for value in ("0", "-1", "x", "", "1e3", "99999999999999999999"):
                self.refused(name, value, says=[name])
        for name in ("--length", "--batch", "--head-dim"):
            self.refused("--only", "attention", name, "9223372036854775807", says=[name + " 9223372036854775807", "GiB"])
        most = "9223372036854775807"
        self.refused("--only", "layer", "--d-model", most, "--length", most, "--heads", most, "--head-dim", most, "--batch", most, says=["GiB"])
        self.refused("--heads", "8", "--kv-heads", "3", says=["8", "3"])
        self.refused("--only", "layer", "--d-model", "512", "--heads", "7", says=["512", "7"])
        self.refused("--only", "decode", "--queries", "9", "--length", "4", says=["9", "4"])
        self.refused("--only", "attention", "--queries", "3", says=["--queries", "attention"])
        self.refused("--only", "decode", "--d-model", "64", says=["--d-model", "decode"])
        self.refused("--only", "layer", "--dtype", "bf16", says=["bf16"])
        self.refused("--only", "backward", says=["backward"])
        self.refused("--dtype", "f64", says=["f64"])
        self.refused("--causal", "--full")
        self.refused("--threads", "100000", says=["100000"])
        self.refused("--only", "limits", "--explain", says=["--explain"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
