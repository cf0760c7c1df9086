"""Scripts with a keeper of their own: interrupted, they end it and leave nothing."""
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# A command that says what it was called with; its programs run until their input ends, in its
# place: dash loses an interrupt that comes as it starts a program.
COMMAND = """#!/bin/sh
echo "$*" >>"$0.log"
case $* in
doctor*) exit 1 ;;
run*name*) exec cat ;;
esac
"""


class Interrupted(unittest.TestCase):
    def end(self, script, number):
        """Ends a script, and what it has started, by a signal while its program runs."""
        with tempfile.TemporaryDirectory() as folder:
            release, temporary = pathlib.Path(folder, "release"), pathlib.Path(folder, "tmp")
            release.mkdir()
            temporary.mkdir()
            command, log = release / "memcuda", release / "memcuda.log"
            for program, text in ((command, COMMAND), (release / "fragment", "#!/bin/sh\n")):
                program.write_text(text)
                program.chmod(0o755)
            run = subprocess.Popen([ROOT / script, release], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                   env={**os.environ, "TMPDIR": str(temporary), "CC": "true"}, start_new_session=True,
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
            begun = time.monotonic()
            while not log.exists() or "/name" not in log.read_text():
                self.assertLess(time.monotonic(), begun + 20, script)
                time.sleep(0.01)
            os.killpg(run.pid, number)
            self.assertEqual(run.wait(20), 128 + number, script)
            run.stdin.close()
            self.assertEqual(list(temporary.iterdir()), [], script)
            self.assertEqual(log.read_text().splitlines()[-1], "keeper stop --force", script)

    def test_they_leave_nothing(self):
        for script in ("examples/run.sh", "benches/names.sh"):
            for number in (signal.SIGINT, signal.SIGTERM):
                with self.subTest(script=script, signal=number.name):
                    self.end(script, number)


if __name__ == "__main__":
    unittest.main()
