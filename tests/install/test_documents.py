"""The pages of docs: their boxes marked `sh tested` are run as they stand, those of a page in
turn, in a scratch home. `train.py` is the reader's job: here the C example over the
simulated GPU. What else the pages say is checked by tests/documents."""
import functools
import os
import re
import subprocess
import sys
import tempfile

import support
from support import ROOT, RELEASE, built, needed, simulated

DOCS = ROOT / "docs"


def tested(page):
    """Its boxes."""
    return re.findall(r"^```sh tested\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


@functools.cache
def environment():
    """A folder whose `venv` has the wheel, for all pages that do not install it themselves."""
    folder = tempfile.TemporaryDirectory(prefix="memcuda-documents-")
    subprocess.run([sys.executable, "-m", "venv", f"{folder.name}/venv"], check=True)
    pip = [f"{folder.name}/venv/bin/pip", "install", "-q", "--no-index", built("wheels/memcuda-*.whl")]
    subprocess.run(pip, check=True)
    return folder


class Pages(support.Test):
    def boxes(self, page, venv):
        """Runs the boxes of a page; what each said."""
        # The job; every other word of Python is Python's.
        jobs = self.scratch / "jobs"
        jobs.mkdir(exist_ok=True)
        python = jobs / "python"
        python.write_text(f'#!/bin/sh\n[ "$1" != train.py ] || exec {self.job()} 128\nexec {venv}/bin/python "$@"\n')
        python.chmod(0o755)
        settings = simulated(HOME=self.scratch, PIP_NO_INDEX="1", PATH=f"{jobs}:{venv}/bin:{os.environ['PATH']}",
                             MEMCUDA_SIM_DEVICES="2", MEMCUDA_SIM_SHARED=self.scratch / "devices",
                             MEMCUDA_KEEPER=self.scratch / "keeper.sock",
                             CARGO_HOME=os.environ.get("CARGO_HOME", os.path.expanduser("~/.cargo")),
                             RUSTUP_HOME=os.environ.get("RUSTUP_HOME", os.path.expanduser("~/.rustup")))
        command = [needed(RELEASE / "memcuda"), "keeper"]
        keeper = subprocess.Popen([*command, "--foreground"], env=settings)
        try:
            # Before that a program would start its own.
            while subprocess.run([*command, "status"], env=settings, capture_output=True).returncode:
                self.assertIsNone(keeper.poll(), "it serves")
            return [self.run_it("bash", "-euxo", "pipefail", "-c", box, cwd=ROOT, env=settings) for box in tested(page)]
        finally:
            keeper.terminate()
            keeper.wait()

    def test_every_page(self):
        ran = 0
        for page in sorted(DOCS.rglob("*.md")):
            own = page.name in ("install.md", "start.md")
            if own or not tested(page):
                continue
            with self.subTest(page=page.name):
                said = self.boxes(page, f"{environment().name}/venv")
                ran += len(said)
                self.assertNotRegex("".join(said), "memcuda[a-z ]*: (warning|error): ")
        self.assertGreaterEqual(ran, 15)

    def test_the_first_five_minutes(self):
        said = self.boxes(DOCS / "start.md", self.venv())
        self.assertRegex(said[1], r"(?m)^bare +3")
        self.assertRegex(said[-1], r"calls reach the shim")

    def test_installing(self):
        said = self.boxes(DOCS / "install.md", self.venv())
        self.assertGreaterEqual(len(said), 4)
        whole = "\n".join(said)
        self.assertRegex(whole, r"(?m)^bare +3")
        self.assertRegex(whole, r"(?m)^memcuda 0\.\d+\.\d+$")
        # On the pool by each of the three ways, and off.
        on = [box for box in said if "MEMCUDA_DISABLE=1" in box][0]
        held = re.findall(r"held (\d+) MiB", on)
        self.assertEqual(held[:3], ["128"] * 3, on)
        self.assertGreater(int(held[3]), 128, on)

    def venv(self):
        """A Python environment without memcuda."""
        venv = self.scratch / "venv"
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        return venv


if __name__ == "__main__":
    support.unittest.main()
