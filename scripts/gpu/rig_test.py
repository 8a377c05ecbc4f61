"""Tests of the rig's own arithmetic. What it does with engines is tested by its dry run."""
import asyncio
import json
import os
import random
import tarfile
import tempfile
import unittest
import xml.etree.ElementTree
from unittest import mock

import chats
import engines
import figures
import models
import plot
import render
import rig
import ucx
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

    def test_a_simulated_engine_has_the_kv_cache_of_the_real_one(self):
        for kv, tokens in {"24G": 174_720, "30G": 218_368, "32G": 232_960}.items():  # by the logs of vLLM
            argv, _ = engines.sim_command("xpyd", {"role": "decode", "kv": kv, "block": 128}, 1, 2, {"model": "m", "length": 32768}, "h200-qwen3-8b")
            self.assertEqual(int(argv[argv.index("--num-blocks") + 1]) * 128, tokens)

    def test_a_simulated_engine_that_serves_either_way_hands_blocks_over(self):
        for role, simulated in {"both": "prefill", "plain": "both", "decode": "decode"}.items():
            argv, _ = engines.sim_command("xpyd", {"role": role}, 1, 2, {"model": "m", "length": 32768}, None)
            self.assertEqual(argv[argv.index("--role") + 1], simulated)

    def test_tensor_parallel_engines_stand_side_by_side(self):
        self.assertEqual([e["gpus"] for e in engines.expand("TP2-TP2", 4).values()], [[0, 1], [2, 3]])

    def test_what_does_not_fit_is_refused(self):
        for topology in ("TP2-TP4", "P1D1", "TP4-TP4"):
            with self.subTest(topology), self.assertRaises(SystemExit):
                engines.expand(topology, 2)


class Memory(unittest.TestCase):
    @staticmethod
    def crowded(memory, *specs):
        return engines.crowded({str(i): s for i, s in enumerate(specs)}, "qwen3-8b", memory)

    def test_engines_that_do_not_fit_are_named_before_they_start(self):
        p, d, wide = ({"gpus": [0], "kv": "16G"}, {"gpus": [0], "kv": "32G"}, {"gpus": [0, 1], "kv": "30G"})
        self.assertEqual(self.crowded([79.6], p, d), ["GPU 0 has 80 GiB, and its engines need 86"])
        self.assertEqual(self.crowded([140], p, d), [])
        self.assertEqual(self.crowded([140, 40], p, d, wide), ["GPU 1 has 40 GiB, and its engines need 41"])


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
    @staticmethod
    def step(contender, ttft, tpot, seed=7100, hold=0):
        totals = {"ms": {"ttft": {"p90": ttft}, "tpot": {"p90": tpot}, "e2el": {"mean": ttft + 10 * tpot}}, "output_tokens_per_second": 900}
        return {"kind": "serve", "workload": "w", "rate": 4, "contender": contender, "seed": seed, "hold": hold,
                "streams": [{"stream": {"input": 9, "output": 3}, "totals": totals}]}

    def round(self, tpot_of_auto, **of):
        return [self.step("always", 300, 7.0, **of), self.step("auto", 200, tpot_of_auto, **of), self.step("never", 250, 14.0, **of)]

    def last(self, steps):
        return render.goal({"steps": steps}).splitlines()[-1]

    def test_auto_is_held_against_the_better_of_the_two_in_each_measure(self):
        self.assertTrue(self.last(self.round(7.2)).endswith("| 1.25 | 0.97 | 1.00 | 1.36 | yes |"))
        self.assertTrue(self.last(self.round(10.0)).endswith("| 1.25 | 0.70 | 1.00 | 1.23 | no |"))

    def test_rounds_are_held_against_themselves(self):
        slower = [self.step("always", 600, 7.0, hold=1), self.step("auto", 630, 7.0, hold=1)]  # never did not run
        self.assertTrue(self.last(self.round(7.2) + self.round(8.0, hold=1) + self.round(7.0, seed=7200)).endswith("| 1.25, 1.25, 1.25 | 0.88, 0.97, 1.00 | 1.00, 1.00, 1.00 | 1.32, 1.36, 1.37 | yes |"))
        self.assertTrue(self.last(self.round(7.2) + slower).endswith("| 1.25 | 0.97 | 1.00 | 1.36 | yes |"))


class Load(unittest.TestCase):
    def offered(self, step, share=1, dry=False):
        r = rig.Rig.__new__(rig.Rig)
        r.args = mock.Mock(dry_run=dry)
        return " ".join(r.offered(step, share))

    def test_a_step_has_a_rate_or_so_many_requests_at_once(self):
        self.assertEqual(self.offered({"rate": 4, "seconds": 15}), "--rate 4 --num-prompts 60")
        self.assertEqual(self.offered({"concurrency": 16, "prompts": 64, "seconds": 9}), "--concurrency 16 --num-prompts 64")
        self.assertEqual(self.offered({"concurrency": 16, "prompts": 64, "seconds": 9}, 0.5), "--concurrency 8 --num-prompts 32")

    def test_loads_of_a_number_at_once_have_names_and_rows_of_their_own(self):
        self.assertEqual([render.load_of(s) for s in ({"rate": 16}, {"rate": None, "concurrency": 16})], [16, "c16"])
        self.assertEqual([render.load_words(s) for s in ({"rate": 16}, {"rate": None, "concurrency": 16})], [16, "16 at once"])


class Shapes(unittest.TestCase):
    PHASES = [{"rate": 50, "seconds": 2, "input": 1}, {"rate": 5, "seconds": 3, "input": 2}]

    def test_each_shape_comes_at_its_rate_for_its_seconds(self):
        came = list(rig.arrivals(random.Random(1), self.PHASES))
        self.assertEqual([at for at, _ in came], sorted(at for at, _ in came))
        self.assertTrue(all((at < 2) == (p["input"] == 1) and 0 < at < 5 for at, p in came))
        self.assertAlmostEqual(sum(p["input"] == 1 for _, p in came), 100, delta=30)

    def test_phases_follow_each_other(self):
        self.assertEqual(rig.spans(self.PHASES), [(0, 2), (2, 5)])


class Figures(unittest.TestCase):
    def test_a_mean_is_that_of_whole_answers(self):
        records = [figures.of_bench(r) for r in ({"due_us": 0, "ttft_us": 1e5, "e2el_us": 5e5, "output_tokens": 5, "itl_us": [1e5, 1e5, 1e5, 1e5]},
                                                 {"due_us": 0, "ttft_us": 2e5, "e2el_us": 3e5, "output_tokens": 2, "itl_us": [1e5]},
                                                 {"due_us": 0, "failure": "timeout"}, {"due_us": 0, "ttft_us": 0})]
        self.assertEqual(figures.pooled(records, 2), {"completed": 2, "failed": 2, "mean_ms": 400, "ttft_p50": 200, "ttft_p90": 200, "tpot_p50": 100, "tpot_p90": 100,
                                                      "itl_p99": 100, "tokens_per_second": 3.5})
        self.assertEqual(figures.pooled([], 1), {"completed": 0, "failed": 0})


class Chats(unittest.TestCase):
    def test_lines_are_whole_wherever_chunks_end(self):
        async def read():
            reader = asyncio.StreamReader()
            for part in (b"data: 1\n\nda", b"ta: 2\n"):
                reader.feed_data(b"%x\r\n%s\r\n" % (len(part), part))
            reader.feed_data(b"0\r\n\r\n")
            return [line async for line in chats.lines(reader, True)]

        self.assertEqual(asyncio.run(read()), [b"data: 1", b"", b"data: 2", b""])


class NoRoles(unittest.TestCase):
    def test_an_engine_without_a_role_is_named_once(self):
        contender, urls = {"mode": "auto", "engines": ["X", "Y"]}, {"X": "http://x", "Y": "http://y"}
        argv = engines.proxy_command("xpyd", contender, urls, 1, 2)
        self.assertEqual(argv[-4:], ["--engine", "http://x,http://y", "--pd-mode", "auto"])
        self.assertEqual(engines.used(contender), ["X", "Y"])

    def test_engines_of_another_rig_are_found_by_their_gpus(self):
        def fleet():
            return engines.Fleet("xpyd", "", {}, True)
        first, second = fleet(), fleet()
        first.engines, first.urls = {"E2": engines.Running(7)}, {"E2": "http://e2"}
        with tempfile.TemporaryDirectory() as folder:
            first.describe(folder + "/engines.json", {"E2": {"gpus": [2], "role": "both"}})
            second.attach(folder + "/engines.json", {"X": {"gpus": [2], "role": "both"}})
            with self.assertRaises(SystemExit):
                second.attach(folder + "/engines.json", {"X": {"gpus": [1], "role": "both"}})
        self.assertEqual((second.urls, second.engines["X"].pid), ({"X": "http://e2"}, 7))

    def test_the_plans_of_a_load_are_those_that_its_log_tells_from_then_on(self):
        with tempfile.NamedTemporaryFile("w") as f:
            f.write('{"time":"a","event":"plan","change":"none"}\n')
            f.flush()
            told = os.path.getsize(f.name)
            f.write('{"time":"b","message":"other"}\n{"time":"c","event":"plan","change":"1 of 2"}\n')
            f.flush()
            self.assertEqual(rig.plans(f.name, told), [["c", "1 of 2"]])


class Fleet(unittest.TestCase):
    @staticmethod
    def step(contender, mean, made, itl=9, seed=1):
        return {"kind": "serve", "workload": "w", "rate": 4, "contender": contender, "seed": seed,
                "all": {"mean_ms": mean, "tokens_per_second": made, "ttft_p90": 90, "tpot_p90": 7, "itl_p99": itl}}

    def rows(self, *steps):
        contenders = dict.fromkeys(("always", "whole", "no roles"))
        return render.fleet({"contenders": contenders, "steps": list(steps)}).splitlines()[2:]

    def test_a_row_is_held_against_the_best_other_of_its_round(self):
        first = [self.step("always", 1000, 500), self.step("whole", 1200, 400, 50), self.step("no roles", 1020, 490)]
        again = [self.step(s["contender"], s["all"]["mean_ms"], 500, s["all"]["itl_p99"], 2) for s in first]
        half = self.step("no roles", 1, 1, seed=3)  # a round that was cut
        other = {"beside": True} | self.step("whole", 1, 1, seed=4)  # of which nothing ran here
        self.assertEqual(self.rows(*first, *again, half, other), ["| w | 4/s | 2 | 1,000 / 1,200 / 1,020 | 1.02, 1.02 | 500 / 450 / 495 | 0.98, 1.00 | 90 / 90 / 90 | 7.0 / 7.0 / 7.0 | 9 / 50 / 9 | yes |"])

    def test_whole_engines_are_balanced_in_the_better_way(self):
        steps = [self.step("always", 1000, 500), self.step("whole", 1200, 400), self.step("whole by load", 900, 500), self.step("no roles", 990, 500)]
        row, = self.rows(*steps)
        self.assertIn("| 1,000 / 900 / 990 | 1.10 |", row)

    def test_contenders_of_another_run_with_the_same_requests_stand_beside(self):
        ran = [{"all": {}} | s for s in (self.step("no roles", 1000, 500), self.step("always", 1100, 500), self.step("no roles", 900, 500, seed=2))]
        lent = [self.step("no roles", 1, 1), self.step("always", 1, 1), self.step("whole", 990, 500), self.step("whole", 1, 1, seed=3)]
        for s in ran + lent:
            s["all"] |= {"completed": 9, "failed": 0}
        more = render.from_another({"steps": lent}, ran)
        self.assertEqual([(s["contender"], s["seed"], s["beside"]) for s in more], [("whole", 1, True)])
        row, = self.rows(*ran, *more)
        self.assertIn("| 1 | 1,100 / 990 / 1,000 | 1.01 |", row)

    def test_what_is_missed_is_named(self):
        row, = self.rows(self.step("always", 1000, 500), self.step("whole", 1200, 400), self.step("no roles", 1100, 400, 10))
        self.assertTrue(row.endswith("| no: whole answer, tokens/s, worst ITL |"), row)


class Client(unittest.TestCase):
    def test_the_runs_of_a_load_stand_together(self):
        def step(contender, rate, ttft):
            totals = {"p50_ttft_ms": ttft, "p90_ttft_ms": 2 * ttft, "p50_tpot_ms": 6.5, "p90_tpot_ms": 7.25, "p99_itl_ms": 11, "mean_e2el_ms": 1900, "request_throughput": 3.618, "completed": 120, "failed": 1}
            return {"kind": "vllm_bench", "contender": contender, "rate": rate, "stream": {"input": 9, "output": 3}, "totals": totals}
        steps = [step("auto", 4, 200), step("never", 2, 100), step("always", 4, 300), {"kind": "vllm_bench", "contender": "late", "rate": 4}]
        rows = render.client({"steps": steps}).splitlines()[2:]
        self.assertEqual(rows, ["| 9/3 | 2 | never | 100 / 200 | 6.5 / 7.2 | 11 | 1,900 | 3.62 | 120 / 1 |",
                                "| 9/3 | 4 | always | 300 / 600 | 6.5 / 7.2 | 11 | 1,900 | 3.62 | 120 / 1 |",
                                "| 9/3 | 4 | auto | 200 / 400 | 6.5 / 7.2 | 11 | 1,900 | 3.62 | 120 / 1 |"])


class Add(unittest.TestCase):
    def kept(self, gpus, seed, mode="always"):
        return {"engines": {"P": {"gpus": gpus, "kv": "30G"}}, "contenders": {"always": {"mode": mode}}, "steps": [{"kind": "serve", "seed": seed}]}

    def add(self, *results):
        with tempfile.TemporaryDirectory() as here, mock.patch.object(render, "HERE", here):
            os.mkdir(os.path.join(here, "results"))
            files = [os.path.join(here, f"{i}.json") for i in range(len(results))]
            for file, r in zip(files, results):
                with open(file, "w") as f:
                    json.dump(r, f)
            render.add(files, "both")
            return render.result_of("both")["steps"]

    def test_runs_on_other_gpus_stand_after_the_earlier_ones(self):
        steps = self.add(self.kept([2], 7), self.kept([0], 7))
        self.assertEqual(steps, [{"kind": "serve", "seed": 7}, {"hold": 1, "kind": "serve", "seed": 7}])

    def test_further_contenders_stand_beside_them(self):
        more = self.kept([0], 7)
        more["contenders"]["auto"] = {"mode": "auto"}
        self.assertEqual(len(self.add(self.kept([2], 7), more)), 2)

    def test_runs_of_other_contenders_or_more_gpus_do_not(self):
        for other in (self.kept([0], 7, mode="never"), self.kept([0, 1], 7)):
            with self.assertRaises(SystemExit):
                self.add(self.kept([2], 7), other)


class Crossover(unittest.TestCase):
    @staticmethod
    def step(contender, ttft, tpot, made, load):
        totals = {"ms": {"ttft": {"median": ttft, "p90": 2 * ttft}, "tpot": {"median": tpot, "p90": tpot}, "itl": {"p99": 2 * tpot}, "e2el": {"median": ttft + 2 * tpot}}, "output_tokens_per_second": made}
        return {"kind": "serve", "workload": "w", "contender": contender, "streams": [{"stream": {"input": 9, "output": 3}, "totals": totals}]} | load

    def test_what_is_better_by_a_twentieth_stands_out(self):
        load, alone = {"rate": None, "concurrency": 8}, {"rate": 2}
        engines = {"P": {"gpus": [0]}, "D": {"gpus": [1]}, "A": {"gpus": [0, 1]}}
        contenders = {"always": {"prefill": ["P"], "decode": ["D"]}, "collocated": {"decode": ["A"]}, "never": {"prefill": ["P"], "decode": ["D"]}}
        steps = [self.step("always", 200, 6.0, 1000, load), self.step("collocated", 120, 9.0, 1300, load), self.step("collocated", 100, 7.0, 900, load),
                 self.step("collocated", 140, 8.0, 1030, load), self.step("never", 1, 1.0, 1, load), self.step("always", 1, 1.0, 1, alone), self.step("always", 100, 6.0, 900, {"rate": 3}), self.step("collocated", 100, 6.0, 900, {"rate": 3})]
        rows = render.crossover({"engines": engines, "contenders": contenders, "steps": steps}).splitlines()[2:]
        self.assertEqual(rows, ["| w | 8 at once | 9/3 | 200 / **120** | 400 / **240** | **6.0** / 8.0 | **6.0** / 8.0 | **12** / 16 | 212 / **138** | 500 / 515 |",
                                "| w | 3/s | 9/3 | 100 / 100 | 200 / 200 | 6.0 / 6.0 | 6.0 / 6.0 | 12 / 12 | 112 / 112 | 450 / 450 |"])


class Plot(unittest.TestCase):
    ENGINES = {"P": {"gpus": [0]}, "D": {"gpus": [1]}}
    CONTENDERS = {"always": {"prefill": ["P"], "decode": ["D"]}, "one": {"direct": "D"}}

    @staticmethod
    def step(contender, load, *streams):
        totals = [{"completed": n, "output_tokens_per_second": made, "ms": {"tpot": {"median": tpot}}} for n, made, tpot in streams]
        return {"kind": "serve", "workload": "w", "contender": contender, "streams": [{"totals": t} for t in totals]} | load

    def result(self):
        return {"engines": self.ENGINES, "contenders": self.CONTENDERS, "steps": [
            self.step("always", {"rate": 12}, (10, 900, 10.0)), self.step("always", {"rate": 12}, (10, 700, 20.0)), self.step("always", {"rate": 12}, (10, 800, 40.0)),
            self.step("always", {"rate": 4}, (30, 100, 4.0), (10, 300, 8.0)), self.step("one", {"rate": None, "concurrency": 8}, (5, 600, 5.0)),
            {"kind": "compare"}, self.step("one", {"rate": 4, "trouble": {}}, (1, 1, 1.0))]}

    def test_a_point_is_the_median_of_a_loads_runs_for_each_gpu_held(self):
        self.assertEqual(plot.points(self.result()), {"w": {
            "always": [(("/s", 4), 200.0, 200.0), (("/s", 12), 50.0, 400.0)], "one": [(("at once", 8), 200.0, 600.0)]}})

    def test_a_workload_with_a_single_load_has_no_line(self):
        one = self.result()
        one["steps"] = one["steps"][:3]
        self.assertEqual(plot.points(one), {})

    def test_each_contender_is_a_line_with_a_point_for_each_load(self):
        tree = xml.etree.ElementTree.fromstring(plot.pareto(self.result()))
        lines = [e for e in tree.iter() if e.tag.endswith("polyline")]
        self.assertEqual([len(e.get("points").split()) for e in lines], [2, 1])
        self.assertTrue({"4/s", "12/s", "8 at once", "always", "one"} <= {e.text for e in tree.iter() if e.tag.endswith("text")})

    def test_ticks_are_round_and_reach_the_most(self):
        self.assertEqual(plot.ticks(155), [0, 50, 100, 150, 200])
        self.assertEqual(plot.ticks(7), [0, 2, 4, 6, 8])

    def test_a_drawing_that_is_old_or_left_over_is_found(self):
        with tempfile.TemporaryDirectory() as images:
            for name, svg in (("gpu-a.svg", "new"), ("bench-b.svg", "of others")):
                with open(os.path.join(images, name), "w") as f:
                    f.write(svg)
            self.assertTrue(render.is_drawn(images, {"gpu-a.svg": "new"}))
            for drawings in ({"gpu-a.svg": "newer"}, {}, {"gpu-a.svg": "new", "gpu-c.svg": "not written"}):
                self.assertFalse(render.is_drawn(images, drawings), drawings)


class Router(unittest.TestCase):
    def test_a_contender_with_a_router_is_that_router_over_the_pair(self):
        urls = {"P": "http://p", "D": "http://d"}
        with mock.patch.dict(os.environ, {"ROUTER": "/there/router.py"}):
            argv = engines.proxy_command("xpyd", {"router": "$ROUTER", "prefill": ["P"], "decode": ["D"]}, urls, 1, 2)
        self.assertEqual(argv[1:3], ["/there/router.py", "--vllm-pd-disaggregation"])
        self.assertEqual(argv[-4:], ["--prefill", "http://p", "--decode", "http://d"])


    def test_its_version_is_that_of_the_package_beside_it(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"ROUTER": folder + "/router.py"}):
            self.assertEqual(rig.router_version({"r": {"router": "$ROUTER"}}), {})
            os.mkdir(folder + "/vllm_router-0.1.17.dist-info")
            self.assertEqual(rig.router_version({"r": {"router": "$ROUTER"}, "always": {}}), {"vllm-router": "0.1.17"})


class Agrees(unittest.TestCase):
    def test_rounds_with_the_same_prompts_are_held_against_each_other(self):
        def step(seed, ttft, hold=0, contender="auto"):
            ms = {"ttft": {"median": ttft, "p90": 2 * ttft}, "tpot": {"median": 10, "p90": 10}}
            return {"kind": "serve", "workload": "w", "rate": 4, "contender": contender, "seed": seed, "hold": hold,
                    "streams": [{"stream": {"input": 9, "output": 3}, "totals": {"ms": ms, "output_tokens_per_second": 100}}]}
        real = {"steps": [step(1, 100), step(2, 200), step(1, 400, hold=1), step(9, 1)]}
        simulated = {"steps": [step(1, 110), step(2, 260), step(1, 480, hold=1), step(8, 1), step(1, 5, contender="never")]}
        self.assertEqual(render.agrees(real, simulated).splitlines()[2:], ["| w | 4 | 9/3 | auto | 3 | 1.20 | 1.20 | 1.00 | 1.00 | 1.00 |"])


class Ways(unittest.TestCase):
    LOG = """[1] [vm:9 :0] | ucp_context_0 self cfg#1 | remote memory read by ucp_get* from host memory to host |
[1] [vm:9 :0] | 0..inf | zero-copy | self/memory |
[1] [vm:9 :0] | ucp_context_0 intra-node cfg#2 | remote memory %s by ucp_%s*(multi) into cuda/GPU0 from cuda/dev[0] |
[1] [vm:9 :0] | 0..inf | software emulation | tcp/lo |
"""

    def test_the_way_is_that_of_the_gpu_memory(self):
        for words in (("read", "get"), ("write", "put")):
            with self.subTest(words), tempfile.NamedTemporaryFile("w") as f:
                f.write(self.LOG % words)
                f.flush()
                self.assertEqual(ucx.way(f.name), ["software emulation", "tcp/lo"])
        self.assertEqual(ucx.way("/there/is/none"), [])

    def test_the_fastest_reads_and_reads_right(self):
        def one(name, ms, right=True, **given):
            return {"try": name, "set": given, "rows": [{"case": "small", "ms": 0.1, "right": True}, {"case": "prompt", "ms": ms, "right": right}]}
        self.assertEqual(ucx.fastest([one("slow", 900), one("quick", 6), one("wrong", 1, False), one("writes", 2, WAY="WRITE")]), "quick")
        self.assertIsNone(ucx.fastest([{"try": "late", "set": {}, "rows": []}]))


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
