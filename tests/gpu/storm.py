#!/usr/bin/env python3
"""Kills processes that make, open and delete names, and the keeper with its
standby, at random moments and under load. Then nothing may be left of them, and
those that lived on have what they had.

    tests/gpu/storm.py [--kills 300] [--keeper-kills 30] [--deaths 100]
    tests/gpu/storm.py --simulated target/release/sim --kills 60 ...

Prints a PASS or FAIL line for each case and a table at the end; ends with 1 if
any failed. Needs a C compiler, and a GPU or --simulated.
"""
import argparse
import collections
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time

import named
import shim_run

SURVIVORS = 4


class Worker(threading.Thread):
    """Runs one process after the other, and kills each at a random moment."""

    def __init__(self, storm, seed):
        super().__init__(daemon=True)
        self.storm, self.random, self.seed = storm, random.Random(seed), seed
        self.killed, self.faults = 0, []

    def run(self):
        options = self.storm.options
        while not self.storm.over.is_set():
            self.seed += 1
            command = [self.storm.program, "work", str(self.seed), str(options.names), str(options.bytes)]
            process = subprocess.Popen(command, env=self.storm.environment, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True)
            # One in ten is killed while it starts.
            if self.random.random() > 0.1 and process.stdout.readline() != "ready\n":
                process.kill()
                self.faults.append(f"did not start: {process.communicate()[1].strip()[-300:]}")
                return
            self.storm.over.wait(self.random.uniform(0, options.life))
            ended = process.poll()
            process.kill()
            said = process.communicate()[1].strip()
            if ended is not None:
                self.faults.append(f"ended with {ended}: {said[-300:]}")
            elif process.returncode == -signal.SIGKILL:
                self.killed += 1


def kinds_of(pid):
    """The descriptors of a process, by their kind."""
    folder, kinds = f"/proc/{pid}/fd", collections.Counter()
    for number in os.listdir(folder):
        try:
            link = os.readlink(os.path.join(folder, number))
        except FileNotFoundError:
            continue
        # Sockets and pipes have a number, memory has the mark of a deleted file.
        kinds[re.sub(r":\[\d+\]$| \(deleted\)$", "", link)] += 1
    return kinds


class Storm:
    def __init__(self, place, options):
        self.place, self.options = place, options
        self.program = place.build("storm")
        self.environment = place.environment()
        self.over = threading.Event()

    def descriptors(self):
        """Of keeper and standby: how many of each kind, once that has been the same
        for a tenth of a second: who asked for the status is known for a moment."""
        status = self.place.status()
        kinds, same = None, 0
        while same < 5:
            time.sleep(0.02)
            now = [kinds_of(status[which]) for which in ("pid", "standby_pid")]
            kinds, same = now, same + 1 if now == kinds else 0
        return kinds

    def settled(self, references):
        """The status once only so many references are left, or at last."""
        named.until(lambda: self.place.status()["references"] == references)
        return self.place.status()

    def kill_keeper(self, which):
        """Milliseconds until there is another one."""
        pid = self.place.status()[which]
        os.kill(pid, signal.SIGKILL)
        began = time.monotonic()

        def another():
            try:
                status = self.place.status()
            except OSError:
                return False
            return status[which] not in (0, pid) and status

        if not named.until(another, 20):
            raise OSError(f"no other {which} within 20 s")
        return (time.monotonic() - began) * 1e3

    def run(self, report):
        options, place = self.options, self.place
        used_before = place.used()
        empty = self.descriptors()
        survivors = []
        for at in range(SURVIVORS):
            process = place.start([self.program, "keep", f"survivor/{at}", str(options.bytes)])
            survivors.append(process)
            if process.stdout.readline() != "ready\n":
                return report.fail("kill storm", "a survivor did not start")
        before = self.descriptors()
        workers = [Worker(self, options.seed + 1000 * at) for at in range(options.workers)]
        began = time.monotonic()
        for worker in workers:
            worker.start()
        waits, standby_waits, seen = [], [], 0
        try:
            while sum(worker.killed for worker in workers) < options.kills or len(waits) < options.keeper_kills:
                if any(worker.faults for worker in workers):
                    break
                time.sleep(random.uniform(0, 0.2))
                seen = max(seen, place.status()["references"])
                done = sum(worker.killed for worker in workers) / max(options.kills, 1)
                if len(waits) < min(options.keeper_kills, done * options.keeper_kills + 1):
                    waits.append(self.kill_keeper("pid"))
                    if len(waits) % 2:
                        standby_waits.append(self.kill_keeper("standby_pid"))
        except OSError as error:
            report.fail("keeper or standby killed", error)
        self.over.set()
        for worker in workers:
            worker.join()
        killed, faults = sum(worker.killed for worker in workers), [f for worker in workers for f in worker.faults]
        seconds = time.monotonic() - began
        report.row("processes killed, none else failing", f"{killed} in {seconds:.0f} s, at most {seen} references",
                   f">= {options.kills}", killed >= options.kills and not faults and seen > SURVIVORS, faults=faults[:5])
        for fault in faults[:5]:
            print(f"  {fault}")
        for who, times, least in (("keeper", waits, options.keeper_kills),
                                  ("its standby", standby_waits, options.keeper_kills // 2)):
            report.row(f"{who} killed, another one there", f"{len(times)} times; p50 {named.percentile(times, 50):.0f} ms, "
                       f"most {max(times, default=0):.0f} ms", f">= {least}", len(times) >= least, times_ms=times)

        intact = [named.say(process, "check") for process in survivors]
        again = [named.say(process, "open") for process in survivors]
        good = [answer == "intact" for answer in intact + again]
        report.row("survivors' checksums, held and opened again", f"{sum(good)} of {len(good)} intact", "all", all(good))
        # All openings of a process are one reference.
        left = self.settled(SURVIVORS)["references"] - SURVIVORS
        report.row("references left by the killed", str(left), "0", left == 0)
        kept = [entry["name"] for entry in place.names() if not entry["name"].startswith("survivor/")]
        unheld = [entry for entry in place.names() if entry["references"] == 0 and not entry["persist"]]
        report.row("names left that nobody holds and nothing keeps", str(len(unheld)), "0", not unheld)
        if kept:
            place.memcuda("rm", *kept)
        named.until(lambda: not any(now - then for now, then in zip(self.descriptors(), before)))
        after = self.descriptors()
        more, fewer = ([dict(a - b) for a, b in zip(*both)] for both in ((after, before), (before, after)))
        report.row("descriptors leaked, keeper and standby", str(sum(sum(it.values()) for it in more)), "0",
                   not any(more), more=more, fewer=fewer)
        closed = [named.say(process, "close") for process in survivors]
        for process in survivors:
            process.stdin.close()
            process.wait()
        status = self.settled(0)
        # Fewer is no leak: whoever died last before may have been known still.
        named.until(lambda: not any(now - then for now, then in zip(self.descriptors(), empty)))
        last = self.descriptors()
        report.row("left at the end", f"{status['references']} references, {status['held_bytes']} bytes, "
                   f"{sum((sum((last[at] - empty[at]).values()) for at in range(2)))} descriptors", "0, 0, 0",
                   status["references"] == status["held_bytes"] == 0
                   and not any(now - then for now, then in zip(last, empty))
                   and closed == ["closed"] * SURVIVORS, closed=closed)
        if used_before is not None:
            # Less than one of the names: what a single leak would leave.
            slack = options.bytes // 2
            named.until(lambda: place.used() <= used_before + slack, 20)
            leaked = place.used() - used_before
            report.row("bytes leaked, by NVML", str(leaked), "0", leaked <= slack)


def deaths(place, options, report):
    """How long the references of a killed holder are there."""
    program = place.build("storm")
    keeper = place.start([program, "keep", "death", str(options.bytes)])
    if keeper.stdout.readline() != "ready\n":
        return report.fail("holder killed", "the first holder did not start")
    observer = place.start([program, "watch", "death"])

    def change():
        count, moment = observer.stdout.readline().split()
        return int(count), int(moment)

    change()
    times = []
    for _ in range(options.deaths):
        holder = place.start([program, "hold", "death"])
        if holder.stdout.readline() != "ready\n":
            return report.fail("holder killed", "a holder did not start")
        if change()[0] != 2:
            return report.fail("holder killed", "the holder is not counted")
        began = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        holder.kill()
        count, moment = change()
        if count != 1:
            return report.fail("holder killed", f"{count} references after it")
        times.append((moment - began) / 1e6)
        holder.communicate()
    for process in (observer, keeper):
        process.kill()
        process.communicate()
    p99 = named.percentile(times, 99)
    report.row(f"holder killed ({len(times)} times): its references gone", f"p50 {named.percentile(times, 50):.2f} ms, "
               f"p99 {p99:.2f} ms, most {max(times):.2f} ms", f"p99 < {options.within:g} ms", p99 < options.within, times_ms=times)


def options_of(parser):
    """What is asked of a storm, for names.py too."""
    parser.add_argument("--kills", type=int, default=300, help="processes to kill")
    parser.add_argument("--keeper-kills", type=int, default=30, help="kills of the keeper; its standby is killed half as often")
    parser.add_argument("--deaths", type=int, default=100, help="holders to kill one by one, with the time taken")
    parser.add_argument("--within", type=float, default=100.0, help="milliseconds after which their references are gone (p99)")
    parser.add_argument("--workers", type=int, default=6, help="processes at one time")
    parser.add_argument("--names", type=int, default=24, help="names that they share")
    parser.add_argument("--bytes", type=int, default=4 << 20, help="of each name")
    parser.add_argument("--life", type=float, default=1.0, help="longest life of a process, in seconds")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--release", default=os.path.dirname(shim_run.LIBRARY), help="folder of the build")
    parser.add_argument("--simulated", metavar="DIR", help="the folder of the simulated GPU, instead of a real one")
    parser.add_argument("--results", default=os.path.join(os.environ.get("OUT", "."), "names.jsonl"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options_of(parser)
    options = parser.parse_args()
    report = named.Report(options.results)
    with named.Place(options.release, options.simulated) as place:
        place.start_keeper()
        deaths(place, options, report)
        Storm(place, options).run(report)
    sys.exit(report.finish())


if __name__ == "__main__":
    main()
