"""Where program.sh finds a program: over a PATH that has the commands it uses, and an
apt-get that is made up, so that nothing of this machine is installed."""
import os
import shutil
import subprocess
import tempfile
import unittest

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "program.sh")
USED = ["sh", "cat", "chmod", "dirname", "find", "head", "mkdir", "paste", "rm", "sort"]


class Program(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.path = os.path.join(self.folder, "bin")
        os.mkdir(self.path)
        for name in USED:
            os.symlink(shutil.which(name), os.path.join(self.path, name))
        self.asked = os.path.join(self.folder, "asked")
        self.command("dpkg", "exit 1")

    def command(self, name, body):
        file = os.path.join(self.path, name)
        with open(file, "w") as script:
            script.write(f"#!{shutil.which('sh')}\n{body}\n")
        os.chmod(file, 0o755)
        return file

    def apt(self, user, install):
        """An apt-get that can download nothing; `install` is what it does as root."""
        self.command("id", f"echo {user}")
        self.command("apt-get", f"""echo "$RUNLEVEL $*" >>{self.asked}
case " $* " in *--download-only*) exit 1 ;; *" install "*) {install} ;; esac""")

    def run_it(self):
        command = [shutil.which("sh"), SCRIPT, "redis-server", os.path.join(self.folder, "got")]
        return subprocess.run(command, env={"PATH": self.path}, capture_output=True, text=True)

    def installs(self):
        with open(self.asked) as asked:
            return [line for line in asked if "download-only" not in line and " install " in line]

    def test_what_is_on_path_is_taken(self):
        self.apt(0, "exit 1")
        file = self.command("redis-server", "exit 0")
        self.assertEqual(self.run_it().stdout.strip(), file)
        self.assertFalse(os.path.exists(self.asked))

    def test_as_root_it_is_installed_last_and_starts_no_service(self):
        file = os.path.join(self.path, "redis-server")
        self.apt(0, f"echo '#!{shutil.which('sh')}' >{file}; chmod +x {file}")
        done = self.run_it()
        self.assertEqual((done.returncode, done.stdout.strip()), (0, file), done.stderr)
        self.assertEqual(self.installs(), ["1 install -y --no-install-recommends redis-server\n"])

    def test_another_user_installs_nothing(self):
        self.apt(1000, "exit 0")
        done = self.run_it()
        self.assertEqual((done.returncode, done.stdout, self.installs()), (1, "", []))
        self.assertIn("install one", done.stderr)

    def test_an_installation_that_fails_is_told(self):
        self.apt(0, "exit 1")
        done = self.run_it()
        self.assertEqual((done.returncode, done.stdout, len(self.installs())), (1, "", 1))
        self.assertIn("install one", done.stderr)


if __name__ == "__main__":
    unittest.main()
