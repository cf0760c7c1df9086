"""torchrun, Slurm and Ray without a cluster: what stands in for them hands on just
what the real ones do, and says what reaches a rank."""
import json
import os
import subprocess
import sys

import support
from support import RELEASE, ROOT, environment, needed

RECIPES = ROOT / "examples/recipes"
# What a rank is in these tests: it says how it was started.
RANK = """
import json, os, sys
maps = open("/proc/self/maps").read()
said = {"words": sys.argv[1:], "preloaded": "/libmemcuda.so" in maps, "preload": os.environ.get("LD_PRELOAD"),
        "settings": {name: it for name, it in os.environ.items() if name.startswith(("MEMCUDA_", "MASTER_"))},
        "rank": os.environ.get("RANK"), "local": os.environ.get("LOCAL_RANK"), "world": os.environ.get("WORLD_SIZE")}
print(json.dumps(said), flush=True)
"""
# torch.distributed.run with --no-python: runs the rest of its words for each rank.
TORCHRUN = """
import os, subprocess, sys
assert "/libmemcuda.so" not in open("/proc/self/maps").read(), "torchrun itself is preloaded"
words = sys.argv[1:]
assert words.pop(0) == "--standalone"
assert words.pop(0) == "--nproc-per-node"
ranks = words.pop(0)
assert words.pop(0) == "--no-python"
for rank in range(int(ranks)):
    subprocess.run(words, check=True, env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": ranks})
"""
# srun: its tasks get what --export says of its environment, and Slurm's own; a site's
# default that says otherwise is in SLURM_EXPORT_ENV.
SRUN = """#!{python}
import os, subprocess, sys
assert "/libmemcuda.so" not in open("/proc/self/maps").read(), "srun itself is preloaded"
words, export = sys.argv[1:], os.environ.get("SLURM_EXPORT_ENV", "ALL")
while words[0].startswith("--"):
    option, _, value = words.pop(0).partition("=")
    export = value if option == "--export" else export
passed = dict(os.environ) if "ALL" in export.split(",") else {{"PATH": os.environ["PATH"]}}
passed.update(it.split("=", 1) for it in export.split(",") if "=" in it)
passed.pop("SLURM_EXPORT_ENV", None)
for rank in range(2):
    subprocess.run(words, check=True, env={{**passed, "SLURM_PROCID": str(rank), "SLURM_LOCALID": "0", "SLURM_NTASKS": "2"}})
"""
SCONTROL = "#!/bin/sh\n[ \"$*\" = 'show hostnames node[1-2]' ] && printf 'node1\\nnode2\\n'\n"


class Recipes(support.Test):
    def setUp(self):
        super().setUp()
        self.library = str(needed(RELEASE / "libmemcuda.so").resolve())
        self.programs = self.scratch / "programs"
        self.programs.mkdir()
        (self.scratch / "rank.py").write_text(RANK)
        (self.programs / "memcuda").symlink_to(RELEASE / "memcuda")
        self.path = f"{self.programs}:{os.environ['PATH']}"

    def program(self, name, text):
        path = self.programs / name
        path.write_text(text)
        path.chmod(0o755)

    def check(self, said, settings):
        """Two ranks, each preloaded once, by an absolute path, with its settings and arguments."""
        ranks = [json.loads(line) for line in said.splitlines()]
        self.assertEqual([it["rank"] for it in ranks], ["0", "1"])
        for it in ranks:
            self.assertEqual((it["preloaded"], it["preload"], it["world"]), (True, self.library, "2"))
            self.assertEqual(it["words"], ["--epochs", "3", "two words"])
            self.assertEqual(it["settings"], settings)
        return ranks

    def test_they_are_what_a_shell_and_python_take(self):
        for path in sorted(RECIPES.iterdir()):
            if path.suffix == ".sh":
                self.run_it("bash", "-n", path)
            elif path.suffix == ".py":
                compile(path.read_text(), str(path), "exec")
            self.assertTrue(os.access(path, os.X_OK), path)

    def test_torchrun(self):
        module = self.scratch / "torch/distributed"
        module.mkdir(parents=True)
        (module / "run.py").write_text(TORCHRUN)
        said = self.run_it(RECIPES / "torchrun.sh", "2", self.scratch / "rank.py", "--epochs", "3", "two words",
                           env=environment(PATH=self.path, PYTHON=sys.executable, PYTHONPATH=self.scratch,
                                           MEMCUDA_LIMIT="2GiB"))
        self.assertEqual([it["local"] for it in self.check(said, {"MEMCUDA_LIMIT": "2GiB"})], ["0", "1"])
        self.assertIn("usage", self.run_it(RECIPES / "torchrun.sh", status=2))

    def test_slurm(self):
        self.program("srun", SRUN.format(python=sys.executable))
        self.program("scontrol", SCONTROL)
        words = [self.scratch / "rank.py", "--epochs", "3", "two words"]
        # A site whose default hands nothing on: the recipe says what it wants.
        env = environment(PATH=self.path, PYTHON=sys.executable, MEMCUDA_LIMIT="2GiB", SLURM_EXPORT_ENV="NONE",
                          SLURM_JOB_NODELIST="node[1-2]")
        said = self.run_it(RECIPES / "slurm.sh", *words, env=env)
        self.check(said, {"MEMCUDA_LIMIT": "2GiB", "MASTER_ADDR": "node1", "MASTER_PORT": "29500"})
        self.assertIn("usage", self.run_it(RECIPES / "slurm.sh", status=2, env=env))
        directives = [line for line in (RECIPES / "slurm.sh").read_text().splitlines() if line.startswith("#SBATCH")]
        for line in directives:
            self.assertRegex(line, r"^#SBATCH --[a-z-]+=\S+$")
        self.assertIn("#SBATCH --nodes=2", directives)

    def test_srun_with_the_variable_alone(self):
        # As docs/recipes/launchers.md has it, for nodes without the command.
        self.program("srun", SRUN.format(python=sys.executable))
        page = (ROOT / "docs/recipes/launchers.md").read_text()
        line = next(it for it in page.splitlines() if it.startswith("srun --export=ALL,LD_PRELOAD="))
        line = line.replace("/opt/memcuda/lib/memcuda/libmemcuda.so", self.library)
        line = line.replace("python train.py", f"{sys.executable} {self.scratch}/rank.py")
        said = self.run_it("sh", "-c", line, env=environment(PATH=self.path, MEMCUDA_LIMIT="2GiB"))
        for it in map(json.loads, said.splitlines()):
            self.assertEqual((it["preload"], it["settings"]), (self.library, {"MEMCUDA_LIMIT": "2GiB"}))

    def test_ray(self):
        said = self.run_it(sys.executable, "-B", RECIPES / "ray_preload.py",
                           env=environment(PATH=self.path, PYTHONPATH=ROOT / "python", MEMCUDA_LIMIT="2GiB"))
        runtime_env = json.loads(said)
        self.assertEqual(runtime_env, {"env_vars": {"LD_PRELOAD": self.library, "MEMCUDA_LIMIT": "2GiB"}})
        # A worker starts in that environment: every value is text, as Ray demands.
        done = subprocess.run([sys.executable, self.scratch / "rank.py"], capture_output=True, text=True, check=True,
                              env={**environment(), **runtime_env["env_vars"]})
        self.assertTrue(json.loads(done.stdout)["preloaded"])


if __name__ == "__main__":
    support.unittest.main()
