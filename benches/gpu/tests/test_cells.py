"""Child processes: their line, their failures, their time limit."""
import os
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import cells


class Children(unittest.TestCase):
    def child(self, program, **words):
        with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as f:
            f.write("import json, os, sys, time\nassert sys.argv[-1] == '--wait'\nline = sys.stdin.readline()\n" + program)
        self.addCleanup(os.unlink, f.name)
        child = cells.Child(f.name, [], dict(os.environ))
        child.go(**words)
        return child

    def test_its_last_json_line_is_the_result(self):
        child = self.child("print('{\"no\": 1}'); print('words'); print(json.dumps(dict(status=0, told=json.loads(line[3:]))))", batch=7)
        result = child.finish(30)
        self.assertEqual((result["status"], result["told"]), (0, dict(batch=7)))
        self.assertGreaterEqual(result["wall_s"], 0)

    def test_a_crash_says_its_last_words(self):
        result = self.child("sys.stderr.write('first\\nlast words\\n'); os._exit(7)").finish(30)
        self.assertEqual((result["status"], result["error"]), (7, "status 7: last words"))

    def test_it_is_ready_when_it_says_so_or_has_ended(self):
        busy = self.child("time.sleep(100)")
        self.assertFalse(busy.ready())
        busy.end()
        self.assertTrue(busy.ready())
        said = self.child("print('ready', flush=True); time.sleep(100)")
        self.addCleanup(said.end)
        for _ in range(1000):
            if said.ready():
                return
            time.sleep(0.02)
        self.fail("never ready")

    def test_no_line_is_a_failure(self):
        self.assertNotEqual(self.child("pass").finish(30)["status"], 0)

    def test_a_signal_is_a_failure(self):
        self.assertEqual(self.child("os.kill(os.getpid(), 9)").finish(30)["status"], -9)

    def test_over_its_time_it_is_killed_with_its_children(self):
        child = self.child("import subprocess\np = subprocess.Popen(['sleep', '100'])\nprint(p.pid, flush=True)\ntime.sleep(100)")
        for _ in range(1000):
            child.out.seek(0)
            if (said := child.out.read()).endswith("\n"):
                break
            time.sleep(0.02)
        grandchild = int(said)
        result = child.finish(1)
        self.assertEqual((result["status"], result["error"]), (124, "not done after 1 s"))
        for _ in range(100):
            try:
                with open(f"/proc/{grandchild}/stat") as f:
                    if f.read().rsplit(")", 1)[1].split()[0] == "Z":
                        return
            except FileNotFoundError:
                return
            time.sleep(0.02)
        self.fail("the child of the child lives on")

    def test_what_the_library_said_is_kept(self):
        result = self.child("sys.stderr.write('memcuda: warn: x\\nother\\n'); print('{\"status\": 0}')").finish(30)
        self.assertEqual(result["said"], ["memcuda: warn: x"])


class Made:
    def __init__(self, item):
        self.item, self.ended = item, False

    def end(self):
        self.ended = True


class Ahead(unittest.TestCase):
    def test_keeps_some_ready_and_hands_out_in_order(self):
        made = []
        ahead = cells.Ahead("abcde", lambda item: made.append(item) or Made(item), 2)
        self.assertEqual(ahead.peek(), "a")
        self.assertEqual(made, ["a", "b"])
        self.assertEqual([ahead.next()[0] for _ in range(2)], ["a", "b"])
        self.assertEqual(made, ["a", "b", "c", "d"])
        waiting = [child for _, child in ahead.waiting]
        self.assertEqual(ahead.drop(), 3)
        self.assertTrue(all(child.ended for child in waiting))
        self.assertIsNone(ahead.next())


if __name__ == "__main__":
    unittest.main()
