"""Steps in turns: nobody makes one before it is told, the order changes, who fails is said."""
import argparse
import contextlib
import io
import json
import os
import socket
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import cell
import cores
import summary
import turns


class Clock:
    def __init__(self):
        self.restarts = 0

    def restart(self):
        self.restarts += 1


class TheProcess(unittest.TestCase):
    def test_a_step_is_made_when_its_turn_comes(self):
        made, (ours, theirs) = [], socket.socketpair()
        self.addCleanup(ours.close)
        steps, clock = cell.in_turns(theirs.detach(), iter(["a", "b"]), Clock()), Clock()
        ours.sendall(b".")
        made.append(next(steps))
        self.assertEqual((ours.recv(9), made), (b".", ["a"]))
        ours.setblocking(False)
        self.assertRaises(BlockingIOError, ours.recv, 1)
        self.assertEqual(clock.restarts, 0)
        ours.close()
        self.assertEqual(list(steps), ["b"], "on to the end where nobody gives turns any more")

    def test_without_turns_nothing_is_waited_for(self):
        clock = Clock()
        self.assertEqual(list(cell.in_turns(None, iter("abc"), clock)), ["a", "b", "c"])
        self.assertEqual(clock.restarts, 0)

    def test_the_collector_works_between_steps(self):
        ours, theirs = socket.socketpair()
        self.addCleanup(ours.close)
        ours.sendall(b"...")
        with mock.patch("cell.gc.collect") as collect, mock.patch("cell.gc.freeze") as freeze:
            steps = cell.in_turns(theirs.detach(), iter("abc"), Clock(), settle_at=(0, 2))
            seen = [(next(steps), collect.call_count, freeze.call_count) for _ in range(3)]
        self.assertEqual(seen, [("a", 1, 1), ("b", 2, 1), ("c", 3, 2)])

    def test_waiting_is_not_in_the_step(self):
        ours, theirs = socket.socketpair()
        self.addCleanup(ours.close)
        ours.sendall(b"..")
        clock = Clock()
        steps = cell.in_turns(theirs.detach(), iter("ab"), clock)
        self.assertEqual([next(steps), next(steps)], ["a", "b"])
        self.assertEqual(clock.restarts, 2)


class Player:
    """Notes its steps; fails at one."""

    def __init__(self, allocator, notes, fails_at=None, repeat=1):
        self.allocator, self.notes, self.fails_at, self.made, self.repeat = allocator, notes, fails_at, 0, repeat
        self.child, self.line = mock.Mock(), mock.Mock()
        self.child.ready.return_value, self.child.seconds.return_value = True, 0

        def finish(limit):
            failed = self.fails_at is not None and self.made > self.fails_at
            return dict(status=1, error="its last words") if failed else dict(status=0, step_ms=[1.0] * self.made)
        self.child.finish = finish

    def tell(self):
        self.notes.append(self.allocator)
        return True

    def waits(self):
        self.made = self.notes.count(self.allocator)
        self.notes.append(".")
        return self.fails_at is None or self.made <= self.fails_at

    def step(self):
        return self.tell() and self.waits()


class ARound(unittest.TestCase):
    def play(self, *players, steps=4, next_ones=()):
        with tempfile.TemporaryDirectory() as folder:
            a = argparse.Namespace(steps=steps, limit=1, smoke=False, run="r", results=os.path.join(folder, "results.jsonl"))
            with mock.patch("results.library", return_value="abc"), contextlib.redirect_stdout(io.StringIO()) as said, \
                    mock.patch("turns.quickest", return_value=[7]), mock.patch.dict("turns.WORKLOADS", detect_varsize=argparse.Namespace(steps=60, warm_from=2)):
                well = turns.play(a, "detect_varsize", players, next_ones)
            with open(a.results) as f:
                return well, [json.loads(line) for line in f], said.getvalue()

    def test_the_first_and_the_warm_steps_are_made_in_turns_the_others_at_once(self):
        notes = []
        well, lines, _ = self.play(Player("native", notes), Player("memcuda-native", notes))
        self.assertTrue(well)
        n, m = "native", "memcuda-native"
        self.assertEqual(notes, [".", "."] + [m, ".", n, "."] + [n, m, ".", "."] + [m, ".", n, "."] + [n, ".", m, "."])
        self.assertEqual([(x["kind"], x["workload"], x["allocator"], x["steps"], x["repeat"]) for x in lines],
                         [("turns", "detect_varsize", n, 4, 1), ("turns", "detect_varsize", m, 4, 1)])
        self.assertEqual([x.get("library") for x in lines], [None, "abc"])
        self.assertEqual([x.get("extra") for x in lines], [None, {"MEMCUDA_IDLE": "1024GiB"}])

    def test_all_are_kept_to_the_quickest_cores(self):
        players = [Player("native", []), Player("memcuda-native", [])]
        self.play(*players, steps=6)
        for player in players:
            self.assertEqual(player.child.keep_to.call_args_list, [mock.call([7])] * 3, "before steps 0, 2 and 4")

    def test_nothing_is_prepared_beside_a_warm_step(self):
        notes, other = [], mock.Mock()
        other.child.ready.side_effect = lambda: notes.append("asked") or notes.count("asked") > 1
        self.play(Player("native", notes), next_ones=[other], steps=3)
        self.assertEqual(notes, [".", "native", ".", "native", ".", "asked", "asked", "native", "."])

    def test_who_fails_ends_the_round_and_is_said(self):
        notes = []
        well, lines, said = self.play(Player("native", notes), Player("memcuda-native", notes, fails_at=1))
        self.assertFalse(well)
        self.assertEqual([x["status"] for x in lines], [1, 1])
        self.assertIn("its last words", said)
        self.assertEqual((notes.count("native"), notes.count("memcuda-native")), (2, 2))


    def test_of_a_round_that_one_ends_early_nobody_counts(self):
        """The others go on to their end without turns: their steps are compared with nobody's."""
        notes, a, b = [], "native", "memcuda-native"
        players = [Player(a, notes), Player(b, notes, fails_at=1), Player(a, notes, repeat=2), Player(b, notes, repeat=2)]
        _, lines, _ = self.play(*players)
        self.assertEqual([x["status"] for x in lines], [1, 1, 1, 1])
        self.assertIn("of its round", lines[2]["error"])
        self.assertEqual(summary.Results([dict(x, schema=summary.SCHEMA) for x in lines]).turns[0].runs, 0)


class TheCores(unittest.TestCase):
    def test_the_quickest_are_chosen_and_this_thread_is_left_where_it_was(self):
        mine = os.sched_getaffinity(0)
        with mock.patch("cores.speed", side_effect=lambda core: core % 5):
            with mock.patch("os.sched_getaffinity", return_value=set(range(10))), mock.patch("os.sched_setaffinity") as back:
                self.assertEqual(set(cores.quickest(4)), {3, 4, 8, 9})
        back.assert_called_once_with(0, set(range(10)))
        self.assertGreater(cores.speed(min(mine)), 0)
        os.sched_setaffinity(0, mine)


class ThePlan(unittest.TestCase):
    def run_plan(self, beside, good, build="old"):
        """The repeats of each set that was played, and how often libraries were read ahead."""
        a = argparse.Namespace(have=[], results="none", smoke=False, repeats=2, workloads=["detect_varsize"],
                               allocators=["native", "memcuda-native"], deadline=float("inf"), expected=1, beside=beside)
        players, played = lambda a, workload, repeats: [Player("native", [], repeat=n) for n in repeats], []
        with mock.patch("results.good", return_value=good), mock.patch("results.library", return_value=build), \
                mock.patch("turns.prepared", side_effect=players), contextlib.redirect_stdout(io.StringIO()), \
                mock.patch("turns.read_libraries") as read, \
                mock.patch("turns.play", side_effect=lambda a, workload, players, next_ones: played.append([p.repeat for p in players]) or True):
            turns.run(a)
        return played, read.call_count

    def test_rounds_with_cells_of_another_build_are_played_again(self):
        good = {("detect_varsize", "native", 1): {}, ("detect_varsize", "memcuda-native", 1): dict(library="old")}
        self.assertEqual(self.run_plan(2, good, "new"), ([[1, 2]], 1))
        self.assertEqual(self.run_plan(2, good), ([[2]], 1))

    def test_who_makes_the_first_step_does_not_wait_for_the_disk(self):
        self.assertEqual(self.run_plan(1, {}), ([[1], [2]], 1))

    def test_a_set_of_every_workload_comes_before_the_second_of_one(self):
        plan = [(workload, x, repeat) for repeat in (1, 2, 3) for workload in "ab" for x in ("native", "memcuda-native")]
        self.assertEqual(turns.sets(plan, 2), [("a", [1, 2]), ("b", [1, 2]), ("a", [3]), ("b", [3])])


if __name__ == "__main__":
    unittest.main()
