"""Tests of the rig's own arithmetic. What it does with engines is tested by its dry run."""
import json
import os
import tarfile
import tempfile
import unittest
from unittest import mock

import engines
import models
import render
import rig
import watch

PAGE = """# HELP vllm:nixl_xfer_time_seconds how long
vllm:nixl_xfer_time_seconds_sum{engine="0"} %s
vllm:nixl_xfer_time_seconds_count{engine="0"} %s
vllm:num_preemptions_total{engine="0"} %s
"""


class Topologies(unittest.TestCase):
    def test_engines_take_the_gpus_in_turn(self):
        got = engines.expand("1P3D", 2)
        self.assertEqual({n: (e["role"], e["gpus"]) for n, e in got.items()},
                         {"1P3D.P0": ("prefill", [0]), "1P3D.D0": ("decode", [1]), "1P3D.D1": ("decode", [0]), "1P3D.D2": ("decode", [1])})

    def test_tensor_parallel_engines_stand_side_by_side(self):
        self.assertEqual([e["gpus"] for e in engines.expand("TP2-TP2", 4).values()], [[0, 1], [2, 3]])

    def test_what_does_not_fit_is_refused(self):
        for topology in ("TP2-TP4", "P1D1", "TP4-TP4"):
            with self.subTest(topology), self.assertRaises(SystemExit):
                engines.expand(topology, 2)


class Counters(unittest.TestCase):
    def test_a_histogram_is_the_mean_of_what_came_between_two_readings(self):
        with mock.patch.object(watch, "get", side_effect=[PAGE % (1.0, 10, 3), PAGE % (1.6, 13, 5)]):
            before, after = watch.counters("http://d"), watch.counters("http://d")
        got = watch.difference(before, after)
        self.assertAlmostEqual(got["nixl_xfer_time_seconds"]["mean"], 0.2)
        self.assertEqual(got["nixl_xfer_time_seconds"]["count"], 3)
        self.assertEqual(got["num_preemptions_total"], 2)

    def test_a_proxy_that_counted_nothing_adds_nothing(self):
        page = 'xpyd_decisions_total{path="decode_only",reason="price"} 7\nxpyd_in_flight{role="decode"} 3\ngo_info 1\n'
        before = rig.proxy_counters(page)
        self.assertEqual(list(before.values()), [7])
        self.assertEqual(rig.grown(before, before), {})


class Goal(unittest.TestCase):
    def table(self, tpot_of_auto):
        def run(contender, ttft, tpot):
            totals = {"ms": {"ttft": {"p90": ttft}, "tpot": {"p90": tpot}}, "output_tokens_per_second": 900}
            return {"kind": "serve", "workload": "w", "rate": 4, "contender": contender, "streams": [{"stream": {"input": 9, "output": 3}, "totals": totals}]}
        return render.goal({"steps": [run("always", 300, 7.0), run("auto", 200, tpot_of_auto), run("never", 250, 14.0)]}).splitlines()[-1]

    def test_auto_is_held_against_the_better_of_the_two_in_each_measure(self):
        self.assertTrue(self.table(7.2).endswith("| 1.25 | 0.97 | 1.00 | yes |"))
        self.assertTrue(self.table(10.0).endswith("| 1.25 | 0.70 | 1.00 | no |"))


class Tokenizer(unittest.TestCase):
    def test_each_id_has_a_text_and_the_first_ones_stay(self):
        small = {"model": {"vocab": {"a": 0, "b": 1}}}
        vocab = models.with_texts(small, 5)["model"]["vocab"]
        self.assertEqual(sorted(vocab.values()), [0, 1, 2, 3, 4])
        self.assertEqual(vocab["b"], 1)
        self.assertEqual(len(small["model"]["vocab"]), 2)


class Kept(unittest.TestCase):
    def test_costs_are_held_against_the_times_of_the_same_requests(self):
        with tempfile.TemporaryDirectory() as folder:
            line = {"message": "path priced", "request_id": "r1", "path": "disaggregated", "prompt_tokens": 90, "split_ms": 150, "local_ms": 300}
            self.pack(folder, "logs", "proxy-auto.log", "[not JSON]\n" + json.dumps(line) + "\n")
            run = {"config": {"input_len": 200}, "records": [{"id": "r1", "ttft_us": 100000}, {"id": "r2", "ttft_us": 1}]}
            self.pack(folder, "runs", "7100-auto@4xw.0/a.run.json", json.dumps(run))
            rows = render.prices_of(folder)({"seed": 7100, "rate": 4, "workload": "w", "streams": [{}]})
        self.assertEqual(rows, [dict(input=200, path="disaggregated", n=1, tokens=90, split_ms=150, local_ms=300, ttft_ms=100.0, error_p50=0.5, error_p90=0.5)])

    @staticmethod
    def pack(folder, name, path, text):
        whole = os.path.join(folder, name, path)
        os.makedirs(os.path.dirname(whole))
        with open(whole, "w") as f:
            f.write(text)
        with tarfile.open(os.path.join(folder, name + ".tar.gz"), "w:gz") as t:
            t.add(os.path.join(folder, name), arcname=name)

    def test_a_block_is_replaced_and_the_words_around_it_stay(self):
        text = "before\n<!-- contenders-2026-11-22 steps -->\nold\n<!-- end -->\nafter"
        new = render.rendered(text)
        self.assertTrue(new.startswith("before\n<!--") and new.endswith("<!-- end -->\nafter"))
        self.assertNotIn("old", new)
        self.assertEqual(render.rendered(new), new)


if __name__ == "__main__":
    unittest.main()
