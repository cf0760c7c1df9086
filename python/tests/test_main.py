"""`python -m memcuda`: what becomes of the words of the command line."""
import subprocess
import sys
import unittest

from memcuda.__main__ import with_python

PYTHON = sys.executable


class Main(unittest.TestCase):
    def test_a_script_is_run_by_this_python(self):
        for before in (["run"], ["run", "--"], ["run", "--trace", "job.zst"], ["run", "--trace=job.py", "--"], ["compare"],
                       ["compare", "--repeat", "5", "--json", "--"], ["compare", "--profiles", "bare"], ["doctor"],
                       ["doctor", "--json"], ["doctor", "--"]):
            for after in ([], ["--epochs", "3"], ["--", "--epochs"], ["--", "other.py"]):
                words = [*before, "train.py", *after]
                self.assertEqual(with_python(words), [*before, PYTHON, "train.py", *after])

    def test_everything_else_stays_as_it_is(self):
        for words in ([], ["stat"], ["run"], ["run", "--"], ["doctor"], ["run", "--trace", "train.py"],
                      ["run", "./program", "--", "tests/test_x.py"], ["run", "--", "./program", "train.py"],
                      ["compare", "pytest", "--", "a.py"], ["explain", "train.py"], ["run", "--trace"]):
            self.assertEqual(with_python(words), words)

    def test_what_python_ignores_the_command_does_not(self):
        become = "import sys, memcuda.__main__ as it; it.command = lambda: '/bin/sh'; it.main()"
        script = "grep SigIgn /proc/self/status"
        said = [subprocess.check_output([*words, "-c", script]) for words in (["/bin/sh"], [PYTHON, "-c", become])]
        self.assertEqual(*said)


if __name__ == "__main__":
    unittest.main()
