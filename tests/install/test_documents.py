"""docs/install.md: its boxes marked `tested` are run as they stand, in turn, in one
scratch home; its links lead somewhere. `train.py` is the reader's job: here the C
example over the simulated GPU."""
import os
import re
import subprocess
import sys

import support
from support import ROOT, built, simulated

PAGE = ROOT / "docs/install.md"


class Page(support.Test):
    def test_its_commands(self):
        blocks = re.findall(r"^```sh tested\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
        self.assertGreaterEqual(len(blocks), 4)
        venv = self.scratch / "venv"
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        # The job; every other word of Python is Python's.
        jobs = self.scratch / "jobs"
        jobs.mkdir()
        python = jobs / "python"
        python.write_text(f'#!/bin/sh\n[ "$1" != train.py ] || exec {self.job()} 128\nexec {venv}/bin/python "$@"\n')
        python.chmod(0o755)
        settings = simulated(HOME=self.scratch, PIP_NO_INDEX="1", PATH=f"{jobs}:{venv}/bin:{os.environ['PATH']}",
                             CARGO_HOME=os.environ.get("CARGO_HOME", os.path.expanduser("~/.cargo")),
                             RUSTUP_HOME=os.environ.get("RUSTUP_HOME", os.path.expanduser("~/.rustup")))
        built("wheels/memcuda-*.whl")
        said = [self.run_it("bash", "-euxo", "pipefail", "-c", block, cwd=ROOT, env=settings) for block in blocks]
        whole = "\n".join(said)
        self.assertRegex(whole, r"(?m)^bare +3")
        self.assertRegex(whole, r"(?m)^memcuda 0\.\d+\.\d+$")
        # On the pool by each of the three ways, and off.
        on = [block for block in said if "MEMCUDA_DISABLE=1" in block][0]
        held = re.findall(r"held (\d+) MiB", on)
        self.assertEqual(held[:3], ["128"] * 3, on)
        self.assertGreater(int(held[3]), 128, on)

    def test_its_links(self):
        headings = {re.sub(r"[^a-z0-9 -]", "", it.lower()).replace(" ", "-")
                    for it in re.findall(r"^#+ (.+)$", PAGE.read_text(), re.MULTILINE)}
        links = re.findall(r"\]\(([^)]+)\)", PAGE.read_text())
        self.assertGreater(len(links), 8)
        for link in links:
            path, _, heading = link.partition("#")
            self.assertTrue((PAGE.parent / path).exists() if path else heading in headings, link)

    def test_what_it_says_of_files_and_targets_is_there(self):
        text = PAGE.read_text()
        makefile = (ROOT / "Makefile").read_text() + (ROOT / "packaging/install.mk").read_text()
        targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
        self.assertEqual(set(re.findall(r"`?make ([a-z-]+)", text)) - targets, set())
        for path in set(re.findall(r"`((?:tests|shim)/[\w/.]+)`", text)):
            self.assertTrue((ROOT / path).exists(), path)


if __name__ == "__main__":
    support.unittest.main()
