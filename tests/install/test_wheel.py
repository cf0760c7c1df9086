"""The wheel in a clean virtual environment, without the network."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

import support
from support import ROOT, built, environment, simulated

sys.path.insert(0, str(ROOT / "python/backend"))
import elf_needs  # noqa: E402

PACKED = "wheels/memcuda-*.whl"
# Below the prefix of an environment.
LIBRARY = "libexec/memcuda/libmemcuda.so"


class Wheel(support.Test):
    @classmethod
    def setUpClass(cls):
        """A clean environment for all of them."""
        directory = tempfile.TemporaryDirectory(prefix="memcuda-install-")
        cls.addClassCleanup(directory.cleanup)
        cls.prefix = pathlib.Path(directory.name).resolve() / "venv"
        made = subprocess.run([sys.executable, "-m", "venv", cls.prefix], capture_output=True, text=True)
        if made.returncode:
            raise AssertionError(f"python3 with venv and pip is needed (Debian: python3-venv)\n{made.stdout}{made.stderr}")
        cls.programs = cls.prefix / "bin"

    def install(self, what):
        """Without the network; what was there before is replaced."""
        self.run_it(self.programs / "pip", "install", "-q", "--no-index", "--no-cache-dir", "--force-reinstall", what)
        return self.programs / "memcuda"

    def test_two_commands_lead_to_a_measured_before_and_after(self):
        memcuda = self.install(built(PACKED))
        self.assertEqual(self.library(memcuda), self.prefix / LIBRARY)
        self.serves(memcuda)
        said = self.run_it(memcuda, "compare", "--json", "--repeat", "1", "--profiles", "bare,keep", "--",
                           self.job(), "128", env=simulated())
        bare, pool = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        self.assertGreater(pool["saved_bytes"], 0, said)
        self.assertEqual(pool["saved_bytes"], bare["peak_device_bytes"] - pool["peak_device_bytes"])

    def test_the_package_finds_the_command_and_the_library(self):
        memcuda = self.install(built(PACKED))
        python, library = self.programs / "python", self.prefix / LIBRARY
        for ask, expected in (("memcuda.present()", "False"), ("memcuda.library_path()", str(library)),
                              ("memcuda.command()", str(memcuda))):
            # Not on PATH: it is found from the package.
            self.assertEqual(self.run_it(python, "-c", f"import memcuda; print({ask})",
                                         cwd=self.scratch).strip(), expected)
        script = self.scratch / "train.py"
        script.write_text("import memcuda, sys; print(memcuda.present(), sys.argv[1:], sys.prefix)")
        for words in (["run", script, "--lr", "1"], ["run", "--", python, script, "--lr", "1"],
                      ["run", "--", script, "--lr", "1"]):
            self.assertEqual(self.run_it(python, "-m", "memcuda", *words).strip(), f"True ['--lr', '1'] {self.prefix}")
        self.assertIn("frobnicate", self.run_it(python, "-m", "memcuda", "frobnicate", status=2))
        shell = f'eval "$({memcuda} env)" && {python} {script}'
        self.assertEqual(self.run_it("sh", "-c", shell).strip(), f"True [] {self.prefix}")

    def test_wherever_pip_is_told_to_put_it_command_library_and_package_find_each_other(self):
        seeing = self.scratch / "venv"
        self.run_it(sys.executable, "-m", "venv", "--system-site-packages", seeing)
        # As pip has them: a prefix, a user's folders, one folder for all.
        for words, folder in ((["--prefix", self.scratch / "prefix"], self.scratch / "prefix"),
                              (["--user", "--no-warn-script-location"], self.scratch / "user"),
                              (["--target", self.scratch / "layer"], self.scratch / "layer")):
            env = environment(PYTHONUSERBASE=self.scratch / "user")
            self.run_it(seeing / "bin/python", "-m", "pip", "install", "-q", "--no-index", "--no-cache-dir",
                        "--ignore-installed", *words, built(PACKED), env=env)
            memcuda, library = folder / "bin/memcuda", folder / LIBRARY
            self.assertEqual(self.library(memcuda), library)
            self.serves(memcuda)
            [package] = folder.glob("**/memcuda/__init__.py")
            ask = "import memcuda; print(memcuda.command(), memcuda.library_path())"
            env["PYTHONPATH"] = str(package.parent.parent)
            said = self.run_it(self.programs / "python", "-c", ask, env=env, cwd=self.scratch)
            self.assertEqual(said.split(), [str(memcuda), str(library)])

    def test_a_folder_that_has_programs_gets_the_library(self):
        """pip leaves `bin` out of a target folder that has one."""
        layer = self.scratch / "layer"
        (layer / "bin").mkdir(parents=True)
        self.run_it(self.programs / "pip", "install", "-q", "--no-index", "--target", layer, built(PACKED))
        env = environment(PYTHONPATH=layer, PATH=self.scratch)
        said = self.run_it(self.programs / "python", "-c", "import memcuda; print(memcuda.library_path())", env=env)
        self.assertEqual(said.strip(), str(layer / LIBRARY))
        said = self.run_it(self.programs / "python", "-m", "memcuda", "env", env=env, status=1)
        self.assertIn("there is no memcuda command", said)

    def test_it_leaves_as_it_came(self):
        pip = self.programs / "pip"
        everything = lambda: {it for it in self.prefix.rglob("*") if "__pycache__" not in it.parts and not it.is_dir()}
        self.install(built(PACKED))
        self.assertIn("No broken requirements", self.run_it(pip, "check"))
        page = self.prefix / "share/man/man1/memcuda-run.1"
        self.assertIn(page, everything())
        self.run_it(pip, "uninstall", "-q", "-y", "memcuda")
        self.assertEqual([it for it in everything() if "memcuda" in it.name], [])

    def test_the_checkout_can_be_installed_itself(self):
        self.serves(self.install(ROOT / "python"))

    def test_its_name_says_what_its_files_need(self):
        wheel = built(PACKED)
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            self.assertIsNone(archive.testzip())
            archive.extractall(self.scratch)
            information = archive.read(next(it for it in names if it.endswith(".dist-info/WHEEL"))).decode()
            licences = {name.split("/")[-1] for name in names if "/licenses/" in name}
            self.assertEqual(licences, {"LICENSE-MIT", "LICENSE-APACHE", "NOTICES"})
            for name in names:
                executable = bool(archive.getinfo(name).external_attr >> 16 & 0o111)
                self.assertEqual(executable, name.endswith(("/scripts/memcuda", "/libmemcuda.so")), name)
        tag = re.fullmatch(r"memcuda-[0-9.]+-(py3-none-manylinux_(\d+)_(\d+)_(\w+))\.whl", wheel.name)
        self.assertIn(f"Tag: {tag[1]}\n", information)
        # Counted a second way: by objdump, of all symbols that are not weak.
        newest = set()
        for name in ("scripts/memcuda", f"data/{LIBRARY}"):
            path = next(self.scratch.glob(f"*.data/{name}"))
            for line in self.run_it("objdump", "-T", path).splitlines():
                found = re.search(r"^\S+ (.{7}) .*GLIBC_(\d+)\.(\d+)", line)
                if found and "w" not in found[1]:
                    newest.add((int(found[2]), int(found[3])))
        needs = (int(tag[2]), int(tag[3]))
        self.assertEqual(needs, max(newest | {elf_needs.OLDEST}))
        self.assertLessEqual(needs, (2, 34), "docs/install.md says where it runs")

    def test_what_cannot_be_packed_is_refused_with_its_reason(self):
        command = [sys.executable, "-B", ROOT / "python/backend/memcuda_wheel.py"]
        usr = self.scratch / "stage/usr"
        (usr / "bin").mkdir(parents=True)
        (usr / "lib/memcuda").mkdir(parents=True)
        pack = lambda: self.run_it(*command, self.scratch / "stage", self.scratch, status=1)
        self.assertIn("bin/memcuda", pack())
        (usr / "bin/memcuda").write_text("#!/bin/sh\n")
        self.assertIn("bin/memcuda", pack())
        # A program that asks for a library of nobody's.
        (self.scratch / "odd.c").write_text("int odd(void) { return 1; }\n")
        (self.scratch / "main.c").write_text("int odd(void); int main(void) { return odd(); }\n")
        self.run_it("cc", "-shared", "-fPIC", "odd.c", "-o", "libodd.so.7", cwd=self.scratch)
        self.run_it("cc", "main.c", "-o", usr / "bin/memcuda", "-L.", "-l:libodd.so.7", cwd=self.scratch)
        self.assertIn("needs libodd.so.7", pack())
        self.assertEqual(list(self.scratch.glob("*.whl*")), [])


if __name__ == "__main__":
    support.unittest.main()
