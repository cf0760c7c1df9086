"""`make install` and `make uninstall`; completions and manual pages, which are of
today's arguments."""
import re
import shutil

import support
from support import RELEASE, ROOT, environment, needed

VERBS = re.compile(r"^  ([a-z]+) +\S", re.MULTILINE)
OPTIONS = re.compile(r"^ +(?:-\w, )?(--[a-z-]+)", re.MULTILINE)


def files(directory):
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if not path.is_dir())


class Tree(support.Test):
    def make(self, target, prefix, status=0, destination=""):
        return self.run_it("make", "-s", "-C", ROOT, target, f"PREFIX={prefix}", f"DESTDIR={destination}", status=status)

    def test_it_works_where_it_is_put_and_where_it_is_moved(self):
        root, prefix = self.scratch / "root", "/opt/memcuda"
        self.make("install", prefix, destination=root)
        tree = root / prefix.lstrip("/")
        for name in ("bin/memcuda", "lib/memcuda/libmemcuda.so", "include/memcuda.h", "share/man/man1/memcuda.1",
                     "share/bash-completion/completions/memcuda", "share/zsh/site-functions/_memcuda",
                     "share/fish/vendor_completions.d/memcuda.fish", "share/doc/memcuda/LICENSE-MIT"):
            self.assertIn(name, files(tree))
        for manager in ("user", "system"):
            unit = (tree / f"lib/systemd/{manager}/memcuda-keeper.service").read_text()
            self.assertIn(f"\nExecStart={prefix}/bin/memcuda keeper --foreground --socket %t/memcuda/keeper.sock\n", unit)
            # However often it ends: with the unit its store of descriptors would.
            self.assertIn("\n[Unit]\n", unit)
            self.assertIn("\nStartLimitIntervalSec=0\n", unit.split("[Service]")[0])
            self.assertNotIn(str(self.scratch), unit)
            # In a user's service each makes a namespace of users, where root is nobody.
            shut = re.findall(r"^(PrivateTmp|ProtectSystem|ProtectHome)=", unit, re.MULTILINE)
            self.assertEqual(len(shut), {"user": 0, "system": 3}[manager])
        self.assertEqual(self.library(tree / "bin/memcuda"), tree / "lib/memcuda/libmemcuda.so")
        self.serves(tree / "bin/memcuda")
        # A symbolic link in a directory of PATH, and another place.
        (self.scratch / "memcuda").symlink_to(tree / "bin/memcuda")
        self.assertEqual(self.library(self.scratch / "memcuda"), tree / "lib/memcuda/libmemcuda.so")
        shutil.move(tree, self.scratch / "moved")
        self.assertEqual(self.library(self.scratch / "moved/bin/memcuda"),
                         self.scratch / "moved/lib/memcuda/libmemcuda.so")

    def test_uninstall_takes_what_install_brought_and_nothing_else(self):
        for name in ("bin/other", "lib/systemd/user/other.service", "share/man/man1/memcudagrind.1"):
            path = self.scratch / name
            path.parent.mkdir(parents=True)
            path.write_text("somebody's")
        before = files(self.scratch)
        self.make("install", self.scratch)
        self.assertGreater(len(files(self.scratch)), len(before) + 10)
        self.make("install", self.scratch)
        self.make("uninstall", self.scratch)
        self.assertEqual(files(self.scratch), before)

    def test_what_is_linked_in_is_named_with_its_licence(self):
        self.make("install", self.scratch)
        notices = (self.scratch / "share/doc/memcuda/NOTICES").read_text()
        parts = re.split(r"^-{78}$", notices, flags=re.MULTILINE)[1:]
        named = lambda part: re.findall(r"^([\w-]+) \d\S* \(", part, re.MULTILINE)
        crates = {name for part in parts for name in named(part)}
        # All of what the command and the library ask for themselves.
        asked = re.search(r"\n\[dependencies\]\n(.*?)\n\[", (ROOT / "Cargo.toml").read_text(), re.DOTALL)[1]
        asked = set(re.findall(r"^([\w-]+) = ", asked, re.MULTILINE))
        self.assertGreater(len(asked), 20)
        self.assertEqual(asked - crates, set())
        # And of what those bring; each with the text that its terms ask to pass on.
        for name, words in (("zstd-sys", "Meta Platforms"), ("ring", "BoringSSL"), ("rustls-webpki", "ISC"),
                            ("untrusted", "Brian Smith"), ("icu_properties", "UNICODE LICENSE V3"), ("subtle", "Redistributions")):
            texts = [part for part in parts if name in named(part)]
            self.assertIn(words, "".join(texts), name)
        self.assertFalse({"syn", "serde_derive"} & crates, "macros are not linked in")
        self.assertNotIn("GNU GENERAL PUBLIC LICENSE", notices)

    def test_all_may_use_it_whatever_the_umask_of_who_installs(self):
        for umask in (0o077, 0o027):
            root = self.scratch / f"{umask:o}"
            root.mkdir(mode=0o755)
            self.run_it("make", "-s", "-C", ROOT, "install", "PREFIX=/opt/memcuda", f"DESTDIR={root}", umask=umask)
            for path in root.rglob("*"):
                needed = 0o755 if path.is_dir() else 0o444
                self.assertEqual(path.stat().st_mode & needed, needed, path)

    def test_a_prefix_that_cannot_be_preloaded_or_started_is_refused(self):
        tree = ROOT / "packaging/tree.sh"
        for prefix, why in (("relative", "absolute"), ("/with a space", "space"), ("/with:colon", "colon"),
                            ("/opt/$ORIGIN", "$"), ("/opt/50%off", "%"), ("/opt/a&b", "&"), ("/opt/a|b", "|"),
                            ("/opt/a\\b", "\\"), ("/opt/it's", "'"), ('/opt/"', '"')):
            said = self.run_it(tree, "install", RELEASE, prefix, self.scratch, status=2)
            self.assertIn(prefix, said)
            self.assertIn(why, said.replace(prefix, ""))
        self.assertEqual(files(self.scratch), [])
        self.assertIn("/with a space", self.make("install", "/with a space", status=2, destination=self.scratch))
        # Any other is taken as it is, and in the units.
        prefix = "/opt/käse;(1)#~@,+=[x]*?!^"
        self.run_it(tree, "install", RELEASE, prefix, self.scratch)
        unit = (self.scratch / prefix.lstrip("/") / "lib/systemd/user/memcuda-keeper.service").read_text()
        self.assertIn(f"\nExecStart={prefix}/bin/memcuda keeper ", unit)
        self.assertEqual(self.library(self.scratch / prefix.lstrip("/") / "bin/memcuda").parent.parent.parent,
                         self.scratch / prefix.lstrip("/"))


class OfTodaysArguments(support.Test):
    def memcuda(self, *words):
        return self.run_it(needed(RELEASE / "memcuda"), *words)

    def verbs(self):
        """Every verb, with its options, as `--help` says."""
        verbs = [verb for verb in VERBS.findall(self.memcuda("--help")) if verb != "help"]
        self.assertGreater(len(verbs), 10)
        return {verb: OPTIONS.findall(self.memcuda(verb, "--help")) for verb in verbs}

    def test_manual_pages(self):
        self.memcuda("man", self.scratch)
        page = lambda name: (self.scratch / name).read_text().replace("\\-", "-")
        for verb, options in self.verbs().items():
            self.assertIn(f"memcuda-{verb}(1)", page("memcuda.1"))
            for option in options:
                self.assertIn(option, page(f"memcuda-{verb}.1"))
        variables = re.findall(r"^\| `(MEMCUDA_\w+)`", (ROOT / "docs/reference/environment.md").read_text(), re.MULTILINE)
        self.assertGreater(len(variables), 10)
        for variable in variables:
            self.assertIn(f"\n\\fB{variable}\\fR = ", page("memcuda.1"))
        self.assertFalse([path for path in self.scratch.iterdir() if "allocate" in path.name or "-man" in path.name])

    def test_completions(self):
        scripts = {shell: self.memcuda("completions", shell) for shell in ("bash", "zsh", "fish")}
        for verb, options in self.verbs().items():
            for shell, script in scripts.items():
                self.assertRegex(script, rf"\b{verb}\b", shell)
                for option in options:
                    said = f"-l {option[2:]}" if shell == "fish" else option
                    self.assertIn(said, script, shell)
        for shell, script in scripts.items():
            self.assertNotIn("keeper-allocate", script, shell)

    def test_bash_completes_as_they_say(self):
        self.assertEqual(set(self.completed("memcuda", "")) - set(self.verbs()), {"-h", "-V", "--help", "--version", "help"})
        self.assertEqual(self.completed("memcuda", "comp"), ["compare", "completions"])
        self.assertEqual(self.completed("memcuda", "stat", "--j"), ["--json"])
        self.assertEqual(self.completed("memcuda", "compare", "--profiles", "na"), ["native"])
        self.assertEqual(self.completed("memcuda", "completions", "z"), ["zsh"])

    def completed(self, *words):
        """What bash offers for the last word."""
        script = self.scratch / "completions"
        script.write_text(self.memcuda("completions", "bash"))
        before = words[-2] if len(words) > 1 else ""
        line = " ".join(f"'{word}'" for word in words)
        said = self.run_it("bash", "--norc", "-c", f"""
            set -u; source {script}; complete -p memcuda | grep -q -- '-F _memcuda'
            COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}
            _memcuda memcuda '{words[-1]}' '{before}'; printf '%s\\n' "${{COMPREPLY[@]}}"
        """, env=environment(LC_ALL="C"))
        return sorted(said.split())


if __name__ == "__main__":
    support.unittest.main()
