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

    def __init__(self, allocator, notes, fails_at=None):
        self.allocator, self.notes, self.fails_at, self.made = allocator, notes, fails_at, 0
        self.child, self.line = mock.Mock(), mock.Mock()
        self.child.ready.return_value, self.child.seconds.return_value = True, 0

        def finish(limit):
            failed = self.fails_at is not None and self.made > self.fails_at
            return dict(status=1, error="its last words") if failed else dict(status=0, step_ms=[1.0] * self.made)
        self.child.finish = finish

    def waits(self):
        return True

    def step(self):
        self.notes.append(self.allocator)
        self.made += 1
        return self.fails_at is None or self.made <= self.fails_at


class ARound(unittest.TestCase):
    def play(self, *players, repeat=1, steps=3):
        with tempfile.TemporaryDirectory() as folder:
            a = argparse.Namespace(steps=steps, limit=1, smoke=False, run="r", results=os.path.join(folder, "results.jsonl"))
            with mock.patch("results.library", return_value="abc"), contextlib.redirect_stdout(io.StringIO()) as said:
                well = turns.play(a, "detect_varsize", repeat, players)
            with open(a.results) as f:
                return well, [json.loads(line) for line in f], said.getvalue()

    def test_every_step_is_everybodys_before_the_next_one(self):
        notes = []
        well, lines, _ = self.play(Player("native", notes), Player("memcuda-native", notes))
        self.assertTrue(well)
        self.assertEqual([sorted(notes[i:i + 2]) for i in range(0, 6, 2)], [["memcuda-native", "native"]] * 3)
        self.assertEqual(notes[::2], ["memcuda-native", "native", "memcuda-native"], "the order changes")
        self.assertEqual([(x["kind"], x["workload"], x["allocator"], x["steps"]) for x in lines],
                         [("turns", "detect_varsize", "native", 3), ("turns", "detect_varsize", "memcuda-native", 3)])
        self.assertEqual([x.get("library") for x in lines], [None, "abc"])

    def test_who_fails_ends_the_round_and_is_said(self):
        notes = []
        well, lines, said = self.play(Player("native", notes), Player("memcuda-native", notes, fails_at=1))
        self.assertFalse(well)
        self.assertEqual([x["status"] for x in lines], [0, 1])
        self.assertIn("its last words", said)
        self.assertLess(len(notes), 6)


class ThePlan(unittest.TestCase):
    def test_rounds_with_cells_of_another_build_are_played_again(self):
        a = argparse.Namespace(have=[], results="none", smoke=False, repeats=2, workloads=["detect_varsize"],
                               allocators=["native", "memcuda-native"], deadline=float("inf"), expected=1)
        good = {("detect_varsize", "native", 1): {}, ("detect_varsize", "memcuda-native", 1): dict(library="old")}
        for build, rounds in ("new", [1, 2]), ("old", [2]):
            played = []
            with mock.patch("results.good", return_value=good), mock.patch("results.library", return_value=build), \
                    mock.patch("turns.prepared", return_value=[]), contextlib.redirect_stdout(io.StringIO()), \
                    mock.patch("turns.play", side_effect=lambda a, workload, repeat, players: played.append(repeat) or True):
                turns.run(a)
            self.assertEqual(played, rounds)


if __name__ == "__main__":
    unittest.main()
