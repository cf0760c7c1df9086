"""What the tests of the ways to install share: scratch directories, an
environment without settings, and a job over the simulated GPU.

`make test-install` builds what they need, and runs them.
"""
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# Of `make test-install PROFILE=...`; `make` within a test has it, too.
RELEASE = ROOT / "target" / os.environ.get("PROFILE", "release").replace("dev", "debug")


def needed(path):
    """A file that a make target must have made."""
    if not path.exists():
        raise AssertionError(f"{path} is missing: make test-install")
    return path


def built(pattern):
    """The newest file of a pattern below `target`."""
    found = sorted((ROOT / "target").glob(pattern), key=lambda path: path.stat().st_mtime)
    if not found:
        raise AssertionError(f"no target/{pattern}: make test-install")
    return found[-1]


def environment(**more):
    """That of this process without anything that says how memcuda or make shall be."""
    ours = ("MEMCUDA_", "MAKE", "MFLAGS", "PIP_", "PYTHON", "SLURM")
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(ours) and name not in ("LD_PRELOAD", "VIRTUAL_ENV", "DESTDIR", "PREFIX")}
    return {**kept, **{name: str(value) for name, value in more.items()}}


def simulated(**more):
    """The same, on a simulated GPU of 1 GiB."""
    return environment(LD_LIBRARY_PATH=needed(RELEASE / "sim/libcuda.so.1").parent, MEMCUDA_SIM_MEMORY="1GiB", **more)


class Test(unittest.TestCase):
    """A test with a scratch directory of its own."""

    maxDiff = None

    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="memcuda-install-")
        self.addCleanup(directory.cleanup)
        self.scratch = pathlib.Path(directory.name).resolve()

    def run_it(self, *command, status=0, env=None, **settings):
        """Runs a command that ends with this status; what it printed."""
        done = subprocess.run([str(word) for word in command], env=env or environment(), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, **settings)
        self.assertEqual(done.returncode, status, f"{' '.join(map(str, command))}\n{done.stdout}")
        return done.stdout

    def job(self):
        """The C example: a program that fragments, over the simulated runtime."""
        program = self.scratch / "fragment"
        if not program.exists():
            self.run_it("cc", "-std=c11", "-O2", ROOT / "examples/fragment.c", "-o", program,
                        "-L", needed(RELEASE / "sim"), "-l:libcudart.so.13")
        return program

    def serves(self, memcuda):
        """A command that is installed somewhere runs a job on the pool that lies with it."""
        said = self.run_it(memcuda, "run", "--", self.job(), "128", env=simulated())
        self.assertIn("held 128 MiB, 0 allocations failed, data right", said)
        bare = self.run_it(self.job(), "128", env=simulated())
        self.assertNotIn("held 128 MiB", bare, "the job shows no difference")

    def library(self, memcuda):
        """Where a command finds its library."""
        line = self.run_it(memcuda, "env").strip()
        self.assertRegex(line, r"^export LD_PRELOAD='/.*/libmemcuda\.so'$")
        return pathlib.Path(line.split("'")[1])
