"""What `make` heeds of who calls it: no variable of the environment moves what is built,
packed or deleted, a cargo that cannot build is not asked to, and a folder is one word."""
import os
import sys

import support
from checkout import Checkout, files
from support import ROOT, environment


class Surroundings(Checkout):
    def test_no_variable_of_the_environment_says_what_is_deleted(self):
        folder, theirs = self.checkout(), self.scratch / "theirs"
        for name in ("stage/usr/precious", "usr/precious", "precious"):
            (theirs / name).parent.mkdir(parents=True, exist_ok=True)
            (theirs / name).write_text("somebody's")
        before = files(theirs)
        self.make("wheel", STAGE=theirs, WHEEL_FOLDER=theirs, TARGET_FOLDER=theirs, RELEASE=theirs)
        self.assertEqual(files(theirs), before)
        self.assertEqual(len(list((folder / "target/wheels").glob("memcuda-*.whl"))), 1)

    def test_what_is_installed_was_built_just_now_wherever_cargo_is_told_to_build(self):
        folder = self.checkout()
        old = folder / "target/debug"
        old.mkdir(parents=True)
        for name in ("memcuda", "libmemcuda.so"):
            (old / name).write_text("an older build")
        self.make("install", f"DESTDIR={self.scratch}/root", CARGO_TARGET_DIR=self.scratch / "else",
                  CARGO_BUILD_TARGET="x86_64-unknown-linux-gnu", CARGO_BUILD_TARGET_DIR=self.scratch / "else")
        self.serves(self.scratch / "root/usr/local/bin/memcuda")
        self.assertFalse((self.scratch / "else").exists())

    def test_a_cargo_that_cannot_build_is_not_asked_to(self):
        folder = self.checkout()
        broken = "#!/bin/sh\necho 'rustup could not choose a version of cargo to run' >&2\nexit 1\n"
        self.program("cargo", broken)
        said = self.make("install", f"DESTDIR={self.scratch}/root", status=2)
        self.assertIn("nothing built in target/debug", said)
        # Why there is none.
        self.assertIn("rustup could not choose", said)
        self.cargo("1.95.0 (a day)")
        self.make("install", f"DESTDIR={self.scratch}/root")
        self.program("cargo", broken)
        for number in range(3):
            said = self.make("install", f"DESTDIR={self.scratch}/{number}")
            self.assertIn("target/debug is used as it is", said)
            self.assertEqual(files(self.scratch / f"{number}"), files(self.scratch / "root"))
            # Too old for this, and none.
            self.cargo("1.89.9 (a day)") if number == 0 else self.program("cargo", "#!/bin/sh\nexit 127\n")
        self.cargo("1.90.0 (a day)")
        self.assertNotIn("used as it is", self.make("install", f"DESTDIR={self.scratch}/last"))
        self.assertIn('rust-version = "1.90"', (folder / "Cargo.toml").read_text())

    def test_a_folder_with_a_space_is_one_folder(self):
        folder, theirs = self.checkout("my checkout"), self.scratch / "my/usr/bin/precious"
        theirs.parent.mkdir(parents=True)
        theirs.write_text("somebody's")
        self.make("wheel")
        self.assertEqual(files(self.scratch / "my"), ["usr/bin/precious"])
        self.assertTrue((folder / "target/stage/usr/bin/memcuda").exists())
        self.assertEqual(len(list((folder / "target/wheels").glob("memcuda-*.whl"))), 1)
        # What cannot be there says so before it builds.
        for target in ("run", "test", "wheel-portable"):
            said = self.make(target, status=2)
            self.assertIn("a path with a space", said)
            self.assertNotIn("build", said)

    def test_words_that_the_tree_does_not_know_are_refused(self):
        said = self.run_it(ROOT / "packaging/tree.sh", "install", "target/release", "/usr", self.scratch, "more", status=2)
        self.assertIn("usage:", said)
        self.assertEqual(files(self.scratch), [])


class Backend(Checkout):
    """What pip calls."""

    def build(self, folder, status=0, **variables):
        """What it says as pip has it make a wheel in the scratch directory."""
        ask = f"import memcuda_wheel; print(memcuda_wheel.build_wheel({str(self.scratch)!r}))"
        env = environment(STRIP="true", PROFILE="dev", PATH=f"{self.scratch}/programs:{os.environ['PATH']}", **variables)
        return self.run_it(sys.executable, "-B", "-c", ask, cwd=folder / "backend", status=status, env=env)

    def test_words_of_a_make_that_calls_pip_are_not_taken_for_ours(self):
        theirs = self.scratch / "theirs"
        theirs.mkdir()
        (theirs / "stage").mkdir()
        folder = self.checkout() / "python"
        self.build(folder, MAKEFLAGS=f" -- STAGE={theirs} TARGET_FOLDER={theirs} RELEASE=1.2", MAKELEVEL="1")
        self.assertEqual([it.name for it in theirs.iterdir()], ["stage"])
        self.assertEqual(len(list(self.scratch.glob("memcuda-*.whl"))), 1)

    def test_a_pip_that_copies_the_folder_alone_is_told_so_and_runs_nobodys_makefile(self):
        self.checkout()
        alone = self.scratch / "pip-req-build-x"
        (self.folder / "python").rename(alone)
        (self.scratch / "Makefile").write_text(f"stage:\n\ttouch {self.scratch}/ran\n")
        self.assertIn("pip 21.3", self.build(alone, status=1))
        self.assertFalse((self.scratch / "ran").exists())


if __name__ == "__main__":
    support.unittest.main()
