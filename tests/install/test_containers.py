"""The container and the manifests of Kubernetes: built and checked by docker where
its daemon answers; everywhere, their own steps are done in scratch directories."""
import json
import os
import re
import shlex
import subprocess
import time

import support
from support import RELEASE, ROOT, environment, needed, simulated

DOCKERFILE = ROOT / "examples/container/Dockerfile"
MANIFESTS = ROOT / "examples/kubernetes"
PYTHON = ROOT / "target/tools/python/bin"
# The documents of a manifest, as JSON.
READ = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))"


class Container(support.Test):
    def instructions(self):
        text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
        return [line.split(None, 1) for line in text.splitlines() if line]

    def test_its_steps_make_an_image_whose_programs_are_preloaded(self):
        build, image = self.scratch / "build", self.scratch / "image"
        stages, variables = 0, {}
        for word, rest in self.instructions():
            if word == "FROM":
                stages += 1
            elif word == "RUN" and rest.startswith("make "):
                self.run_it("sh", "-c", rest.replace("/out", f"{build}/out"), cwd=ROOT)
            elif word == "RUN":
                self.assertTrue(rest.startswith("apt-get "), rest)
            elif word == "COPY" and rest != ". /src":
                source, target = re.fullmatch(r"--from=build (\S+) (\S+)", rest).groups()
                (image / target.lstrip("/")).parent.mkdir(parents=True)
                self.run_it("cp", "-r", f"{build}{source}", f"{image}{target}")
            elif word == "ENV":
                variables.update([rest.split("=", 1)])
            elif word == "CMD":
                command = json.loads(rest)
            else:
                self.assertIn((word, rest), [("ARG", "BASE=debian:bookworm-slim"), ("COPY", ". /src"),
                                             ("WORKDIR", "/src")])
        self.assertEqual(stages, 2)
        library = variables["LD_PRELOAD"]
        self.assertEqual(self.library(image / "usr/local/bin/memcuda"), image / library.lstrip("/"))
        self.serves(image / "usr/local/bin/memcuda")
        said = self.run_it(image / "usr/local/bin" / command[0], *command[1:],
                           env=simulated(LD_PRELOAD=f"{image}{library}"))
        self.assertIn("memcuda simulated GPU", said)

        if answers("docker", "info"):
            self.run_it("docker", "build", "-q", "-f", DOCKERFILE, "-t", "memcuda:test", ROOT)
            said = self.run_it("docker", "run", "--rm", "memcuda:test", "memcuda", "env")
            self.assertIn(library, said)

    def test_a_build_sends_nothing_to_the_daemon_that_it_does_not_need(self):
        ignored = (ROOT / ".dockerignore").read_text().split()
        self.assertEqual(ignored, ["target", ".git", "**/__pycache__"])


def answers(*command):
    """Does this command exist and succeed?"""
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


class Kubernetes(support.Test):
    def read(self, name):
        return json.loads(self.run_it(needed(PYTHON / "python"), "-c", READ, MANIFESTS / name))[0]

    def test_manifests_are_of_the_schemas_of_kubernetes(self):
        paths = [*sorted(MANIFESTS.glob("*.yaml")), ROOT / "examples/keeper/sidecar.yaml"]
        self.assertEqual(len(paths), 3)
        validate = needed(PYTHON / "kubernetes-validate")
        for path in paths:
            for version in ("1.29", "1.34"):
                self.run_it(validate, "--strict", "-k", version, path)
            # One word wrong is seen: the check can fail.
            wrong = self.scratch / path.name
            wrong.write_text(path.read_text().replace("command:", "comand:", 1))
            self.assertIn("comand", self.run_it(validate, "--strict", wrong, status=1))

    def test_the_job_finds_the_library_where_its_init_container_put_it(self):
        spec = self.read("job.yaml")["spec"]["template"]["spec"]
        image = self.scratch / "image"
        self.run_it("make", "-s", "-C", ROOT, "install", "PREFIX=/usr/local", f"DESTDIR={image}")
        first, job = spec["initContainers"][0], spec["containers"][0]
        (self.scratch / "memcuda").mkdir()
        moved = [re.sub("^/usr/local", f"{image}/usr/local", re.sub("^/memcuda", f"{self.scratch}/memcuda", word))
                 for word in first["command"]]
        self.run_it(*moved)
        mounts = {it["mountPath"]: it["name"] for it in job["volumeMounts"]}
        self.assertEqual(mounts["/memcuda"], first["volumeMounts"][0]["name"])
        variables = {it["name"]: it["value"] for it in job["env"]}
        library = variables["LD_PRELOAD"]
        self.assertTrue(library.startswith("/memcuda/") and needed(self.scratch / library.lstrip("/")))
        self.serves(self.scratch / "memcuda/bin/memcuda")
        # The loader would say what it cannot preload.
        said = self.run_it("true", env=environment(LD_PRELOAD=self.scratch / library.lstrip("/")))
        self.assertEqual(said, "")

    def test_the_keeper_serves_and_is_probed_as_its_manifest_says(self):
        spec = self.read("keeper.yaml")["spec"]["template"]["spec"]
        keeper, prepare = spec["containers"][0], spec["initContainers"][0]["command"]
        # What its first lines tell jobs.
        self.assertIn(f"MEMCUDA_KEEPER={keeper['command'][-1]}.", (MANIFESTS / "keeper.yaml").read_text())
        run = str(self.scratch / "run")
        here = lambda words: [word.replace("/run/memcuda", run) for word in words]
        path = environment(PATH=f"{RELEASE}:{os.environ['PATH']}", XDG_RUNTIME_DIR=self.scratch)
        # As the user of this test: the numbers of the owner are the cluster's.
        words = shlex.join(here(prepare)).replace("-o 1000 -g 1000 ", "")
        self.run_it("sh", "-c", words)
        probe = here(keeper["readinessProbe"]["exec"]["command"])
        self.assertEqual(keeper["livenessProbe"]["exec"]["command"], keeper["readinessProbe"]["exec"]["command"])
        self.run_it(*probe, env=path, status=1)
        served = subprocess.Popen(here(keeper["command"]), env=path, stderr=subprocess.PIPE, text=True)
        try:
            until = time.monotonic() + 20
            while subprocess.run(probe, env=path, capture_output=True).returncode:
                self.assertLess(time.monotonic(), until, "the probe never succeeds")
                time.sleep(0.05)
        finally:
            served.terminate()
            _, said = served.communicate(timeout=20)
        self.assertNotIn("panicked", said)
        self.run_it(*probe, env=path, status=1)


if __name__ == "__main__":
    support.unittest.main()
