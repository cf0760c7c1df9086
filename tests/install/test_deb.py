"""The Debian package: its contents, and its life in a scratch root."""
import platform
import re

import support
from support import built, environment


class Package(support.Test):
    def test_its_contents(self):
        package = built("debian/memcuda_*.deb")
        field = lambda name: self.run_it("dpkg-deb", "-f", package, name).strip()
        self.assertEqual(field("Package"), "memcuda")
        self.assertEqual(field("Architecture"), {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()])
        self.assertRegex(field("Depends"), r"libc6 \(>= 2\.\d+\)")
        modes = {}
        for line in self.run_it("dpkg-deb", "-c", package).splitlines():
            mode, owner, *_, path = line.split()
            self.assertIn(owner, ("root/root", "0/0"), line)
            modes[path] = mode
        self.assertEqual(modes["./usr/bin/memcuda"], "-rwxr-xr-x")
        for path in ("lib/memcuda/libmemcuda.so", "include/memcuda.h", "lib/systemd/user/memcuda-keeper.service",
                     "lib/systemd/system/memcuda-keeper.service", "share/man/man1/memcuda.1.gz",
                     "share/man/man1/memcuda-keeper-status.1.gz", "share/doc/memcuda/copyright", "share/doc/memcuda/NOTICES",
                     "share/bash-completion/completions/memcuda", "share/zsh/vendor-completions/_memcuda",
                     "share/fish/vendor_completions.d/memcuda.fish"):
            self.assertEqual(modes.get(f"./usr/{path}"), "-rw-r--r--", path)
        self.assertFalse([path for path in modes if not path.startswith("./usr/")])

    def test_it_is_installed_runs_and_is_removed(self):
        root = self.scratch / "root"
        database = root / "var/lib/dpkg"
        for folder in ("info", "updates", "triggers"):
            (database / folder).mkdir(parents=True)
        (database / "status").touch()
        # libc6 is that of this machine, of which the scratch root knows nothing.
        dpkg = ["dpkg", f"--root={root}", "--force-depends,not-root,bad-path", f"--log={self.scratch}/log"]
        self.run_it(*dpkg, "--install", built("debian/memcuda_*.deb"))
        self.assertIn("Status: install ok installed", self.run_it(*dpkg, "--status", "memcuda"))
        self.serves(root / "usr/bin/memcuda")
        self.assertEqual(self.library(root / "usr/bin/memcuda"), root / "usr/lib/memcuda/libmemcuda.so")
        page = root / "usr/share/man/man1/memcuda.1.gz"
        self.assertIn("MEMCUDA_LIMIT", self.run_it("gzip", "-dc", page))
        self.run_it(*dpkg, "--purge", "memcuda")
        self.assertEqual([it for it in (root / "usr").rglob("*") if not it.is_dir()], [])

    def test_the_units_are_for_the_command_of_the_package(self):
        self.run_it("dpkg-deb", "-x", built("debian/memcuda_*.deb"), self.scratch)
        for manager in ("user", "system"):
            unit = (self.scratch / f"usr/lib/systemd/{manager}/memcuda-keeper.service").read_text()
            sections = re.findall(r"^\[(\w+)\]$", unit, re.MULTILINE)
            self.assertEqual(sections, ["Unit", "Service", "Install"])
            command = re.search(r"^ExecStart=(/usr/bin/memcuda) (keeper .*)$", unit, re.MULTILINE)
            path = self.scratch / command[1].lstrip("/")
            self.run_it(path, *command[2].split(), "--help", env=environment())
        line = re.search(r"^FileDescriptorStoreMax=(\d+)\nEnvironment=FDSTORE=(\d+)$", unit, re.MULTILINE)
        self.assertEqual(line[1], line[2])


if __name__ == "__main__":
    support.unittest.main()
