"""A checkout of its own with a cargo that only pretends to build: what `make` does with its
environment, its folder and its cargo, without a build and without harm to this tree."""
import pathlib
import shutil
import subprocess
import tempfile

import support
from support import RELEASE, ROOT, environment, needed

# Of `make install`, `make stage` and `make wheel`; python/ without what running it left.
PARTS = ["Makefile", "Cargo.toml", "Cargo.lock", "LICENSE-MIT", "LICENSE-APACHE", "packaging", "include", "python",
         "examples", "sim/install.sh"]
# Puts what was built where cargo would, and names no crates.
CARGO = """#!/bin/sh
case $1 in
--version) printf 'cargo {version}\\nhost: this\\n' ;;
metadata) echo '{{"packages": []}}' ;;
build)
    out=${{CARGO_TARGET_DIR:-target}}/$CARGO_BUILD_TARGET/debug
    mkdir -p "$out"
    ln -sf {built}/memcuda {built}/libmemcuda.so "$out" ;;
esac
"""


class Checkout(support.Test):
    """Tests in such a checkout."""

    @classmethod
    def setUpClass(cls):
        """What was built, small: to strip and to pack it takes most of the time."""
        directory = tempfile.TemporaryDirectory(prefix="memcuda-install-")
        cls.addClassCleanup(directory.cleanup)
        cls.built = pathlib.Path(directory.name)
        for name in ("memcuda", "libmemcuda.so"):
            subprocess.run(["strip", needed(RELEASE / name), "-o", cls.built / name], check=True)

    def checkout(self, name="checkout"):
        """Makes one; its folder."""
        self.folder = self.scratch / name
        for part in PARTS:
            source, target = ROOT / part, self.folder / part
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, target)
        self.cargo("1.95.0 (a day)")
        return self.folder

    def cargo(self, version):
        """From now on the cargo is this one."""
        self.program("cargo", CARGO.format(version=version, built=self.built))

    def program(self, name, text):
        """A program in front of all others of that name."""
        path = self.scratch / "programs" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def make(self, *words, status=0, **variables):
        """What `make` says there."""
        env = environment(STRIP="true", **variables)
        env["PATH"] = f"{self.scratch}/programs:{env['PATH']}"
        return self.run_it("make", "-C", self.folder, "PROFILE=dev", *words, status=status, env=env)


def files(folder):
    """What lies in a folder, by its path there."""
    return sorted(path.relative_to(folder).as_posix() for path in pathlib.Path(folder).rglob("*") if not path.is_dir())
