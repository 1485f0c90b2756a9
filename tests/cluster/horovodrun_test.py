#!/usr/bin/env python3
"""Tests horovodrun over several virtual nodes, with the stand-in for ssh. horovodrun_test.py BUILD [Class.test]

Starts a cluster for itself. The tests find ranks by a mark in their environment, and agents by their command line. No
test sleeps, and time limits only turn a hang into a failure.
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from virtual_nodes import HERE, NODES, enter
from cluster_harness import (BUILD, HOROVODRUN, WAIT, ClusterJob, EndTest, RefusalTest, agents, cluster_processes,
                             family_of, is_keeper, nodes, on_n1, parent_of, read, wait_until_none_is_left)
from launcher_harness import LIMIT_SECONDS, LauncherTest, last_block, marked_processes


class Ranks(unittest.TestCase):
    def test_know_their_places_on_two_hosts(self):
        shell = "echo $(hostname) $HOROVOD_RANK $HOROVOD_SIZE $HOROVOD_LOCAL_RANK $HOROVOD_LOCAL_SIZE " \
                "$HOROVOD_CROSS_RANK $HOROVOD_CROSS_SIZE $HOROVOD_HOSTNAME $MINE"
        result = on_n1("-np", "3", "-H", "n1:2,n2:4", "sh", "-c", shell, MINE="x")
        self.assertEqual(sorted(result.stdout.splitlines()),
                         ["[0]<stdout>:n1 0 3 0 2 0 2 n1 x", "[1]<stdout>:n1 1 3 1 2 0 1 n1 x",
                          "[2]<stdout>:n2 2 3 0 1 1 2 n2 x"],
                         result.stderr)

    def test_meet(self):
        for hosts in ("n1:2,n2:2", "n3:1,n2:3", "n2:4"):
            listing = ",".join(host.split(":")[0] for host in hosts.split(",") for _ in range(int(host.split(":")[1])))
            result = on_n1("-np", "4", "-H", hosts, os.path.join(BUILD, "tests", "bootstrap_rank"), "rendezvous", "5",
                           listing)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_meet_on_ports_of_a_range(self):
        result = on_n1("-np", "2", "-H", "n1:1,n2:1", os.path.join(BUILD, "tests", "bootstrap_rank"), "rendezvous",
                       "2", "n1,n2", HOROVOD_PORT_RANGE="23000-23009")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_get_the_interface_that_was_asked_for(self):
        result = on_n1("-np", "2", "--network-interfaces", "eth0", "-H", "n1:1,n2:1", "sh", "-c",
                       "echo $HOROVOD_GLOO_IFACE $HOROVOD_GLOO_RENDEZVOUS_ADDR")
        self.assertEqual(sorted(result.stdout.splitlines()),
                         [f"[{rank}]<stdout>:eth0 10.77.0.1,[fd77::1]" for rank in range(2)], result.stderr)
        result = on_n1("-np", "2", "--network-interfaces", "ib7", "-H", "n1:1,n2:1", "true")
        self.assertEqual(result.returncode, 1)
        self.assertIn("none of the network interfaces asked for (ib7) is here", result.stderr)
        self.assertRegex(result.stderr, "this host has .*eth0")

    def test_on_another_host_read_standard_input(self):
        text = "".join(f"line {number}\n" for number in range(100000))
        result = on_n1("-np", "2", "-H", "n2:1,n3:1", "sh", "-c", "exec cat | cksum", stdin=text)
        wanted = subprocess.run(["cksum"], input=text, stdout=subprocess.PIPE, text=True).stdout.strip()
        self.assertIn("[0]<stdout>:" + wanted, result.stdout.splitlines(), result.stderr)
        self.assertIn("[1]<stdout>:4294967295 0", result.stdout.splitlines())

    def test_take_no_more_than_the_secret_and_leave_it_off_every_command_line(self):
        job = ClusterJob("n1:1,n2:1", "echo secret $HOROVOD_SECRET_KEY; exec sleep 1000", ranks=2)
        secret = job.wait_for_lines(2, b"secret")[0].split()[-1]
        self.assertGreaterEqual(len(secret), 32)
        for pid in cluster_processes():
            self.assertNotIn(secret, read(pid, "cmdline"))
        os.kill(job.launcher(), signal.SIGTERM)
        job.finish()
        job.assert_nothing_is_left(self)


class Hosts(RefusalTest):
    def refused(self, hosts, ranks=2, **environment):
        return super().refused("-np", str(ranks), "-H", hosts, **environment)

    def test_that_cannot_be_used_are_named_with_the_remedy_before_anything_runs(self):
        self.assertIn("the host n9 cannot be used: it cannot be reached (ssh: Could not resolve hostname",
                      self.refused("n2:1,n9:1"))
        self.assertIn("n2 is named twice", self.refused("n2:1,n2:1"))
        self.assertIn("n2 and 10.77.0.2 are the same machine", self.refused("n2:1,10.77.0.2:1"))
        self.assertIn("more ranks than the hosts have slots", self.refused("n1:1,n2:1", 3))
        self.assertIn("the host n2 cannot be used: the program /no/horovodrun cannot be executed there",
                      self.refused("n1:1,n2:1", HOROVOD_REMOTE_PROGRAM="/no/horovodrun"))

    def test_that_cannot_reach_horovodrun_are_named(self):
        self.assertRegex(self.refused("n2:1,n3:1", HOROVOD_GLOO_IFACE="lo"),
                         "the host n[23] cannot take part: horovodrun cannot be reached at 127.0.0.1:")

    def test_may_talk_before_the_agent_does(self):
        talker = f"sh -c 'echo hello; head -c 100000 /dev/zero; exec {HERE}/agent \"$@\"' sh"
        script = os.path.join(BUILD, "talkative-agent")
        with open(script, "w") as file:
            file.write("#!/bin/sh\nexec " + talker + ' "$@"\n')
        os.chmod(script, 0o755)
        result = on_n1("-np", "2", "-H", "n1:1,n2:1", "echo", "hello", HOROVOD_SSH=script)
        os.unlink(script)
        self.assertEqual(sorted(result.stdout.splitlines()), ["[0]<stdout>:hello", "[1]<stdout>:hello"], result.stderr)


class Ends(EndTest):
    def test_with_the_code_of_the_rank_that_failed(self):
        job = ClusterJob("n1:2,n3:2", 'if [ $HOROVOD_RANK = 3 ]; then echo "the reason" >&2; exit 7; fi; exec sleep '
                                      '1000')
        self.end(job, 7, "rank 3 on host n3 ")
        self.assertIn("| the reason", last_block(job.errors))

    def test_when_a_rank_is_killed(self):
        job = ClusterJob("n1:2,n2:2", WAIT)
        job.wait_for_lines(4)
        os.kill(job.rank(3), signal.SIGKILL)
        self.end(job, 137, "rank 3 on host n2 ")

    def test_when_an_agent_is_killed(self):
        job = ClusterJob("n2:2,n3:2", WAIT)
        job.wait_for_lines(4)
        os.kill(next(pid for pid in agents() if parent_of(pid) in agents()), signal.SIGKILL)
        self.end(job, 137)
        self.assertIn("was lost", job.errors.decode())

    def test_when_what_ssh_started_is_killed(self):
        job = ClusterJob("n2:2,n3:2", WAIT)
        job.wait_for_lines(4)
        os.kill(next(pid for pid in agents() if parent_of(pid) not in agents()), signal.SIGKILL)
        self.end(job, 137)

    def test_when_the_agent_of_its_own_host_is_killed(self):
        job = ClusterJob("n1:2,n3:2", WAIT)
        job.wait_for_lines(4)
        os.kill(parent_of(job.rank(0)), signal.SIGKILL)
        self.end(job, 137)

    def test_when_horovodrun_is_killed(self):
        for hosts in ("n2:2,n3:2", "n1:2,n3:2"):
            job = ClusterJob(hosts, WAIT)
            job.wait_for_lines(4)
            os.kill(job.launcher(), signal.SIGKILL)
            job.finish()
            job.assert_nothing_is_left(self)

    def test_by_a_signal_to_horovodrun(self):
        for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            job = ClusterJob("n1:2,n3:2", WAIT)
            job.wait_for_lines(4)
            os.kill(job.launcher(), one)
            job.finish()
            job.assert_nothing_is_left(self)
            self.assertIn(signal.Signals(one).name + " received", job.errors.decode())

    def test_with_signals_forwarded_to_all_hosts(self):
        job = ClusterJob("n1:1,n3:1", "trap 'echo caught; exit 0' USR1; echo ready; while :; do sleep 0.1; done",
                         ranks=2)
        job.wait_for_lines(2)
        os.kill(job.launcher(), signal.SIGUSR1)
        job.wait_for_lines(2, b"caught")
        self.end(job, 0)


def in_slurm(*command, options=("-N2", "-n4", "--ntasks-per-node=2"), stdin="", **environment):
    return subprocess.run([NODES, "on", "n1", "salloc", "--quiet", *options, *command],
                          env=dict(os.environ, **environment),
                          input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)


# A program and words that contain everything that launchers cut, lose or interpret: many short lines, long lines, any
# byte, ":", the end of standard input.
EVERYTHING = [sys.executable, "-c", "import sys\nsys.stdin.read()\nprint(sys.argv[1:], flush=True)\nfor i in "
                                    "range(200000): print(i)\n"
                                    "for i in range(900, 9000, 99): print('x' * i)\nsys.stdout.flush()\n"
                                    "sys.stdout.buffer.write(bytes(b for b in range(256) if b != 13))"]
WORDS = ["a", ":", "", "\\:", "hostname"]
ALL_OF_IT = [str(WORDS), *map(str, range(200000)), *("x" * i for i in range(900, 9000, 99)),
             *bytes(b for b in range(256) if b != 13).decode("latin1").split("\n")]


def lines_of(rank, output):
    label = "[%d]<stdout>:" % rank
    return [line[len(label):] for line in output.decode("latin1").split("\n") if line.startswith(label)]


RANK = os.path.join(BUILD, "tests", "bootstrap_rank")
VICTIM = os.path.join(BUILD, "tests", "runtime_victim")


@unittest.skipUnless(os.path.exists(os.path.join(BUILD, "lib", "libhorovod_pmix.so")), "built without PMIx")
class InAnAllocationOfSlurm(LauncherTest):
    def test_ranks_are_started_by_srun_and_meet(self):
        result = in_slurm(HOROVODRUN, "-np", "4", RANK, "pmix", "3", "n1,n1,n2,n2")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_ranks_get_their_words_and_input_and_all_output_comes(self):
        job = ClusterJob("", "", whole=[NODES, "on", "n1", "salloc", "--quiet", "-N2", "-n2", "--ntasks-per-node=1",
                                        HOROVODRUN, "-np", "2", *EVERYTHING, *WORDS])
        self.finish(job, 0)
        for rank in range(2):
            self.assertEqual(lines_of(rank, job.output), ALL_OF_IT)
        # If the job's nodes have no horovodrun under that path, the ranks run without keepers.
        result = in_slurm(HOROVODRUN, "-np", "1", "printf", "%s|", "a", ":", "it's", "",
                          HOROVOD_REMOTE_PROGRAM="/no/horovodrun")
        self.assertEqual(result.stdout, "[0]<stdout>:a|:|it's||\n", result.stderr)

    def test_hosts_may_be_named(self):
        result = in_slurm(HOROVODRUN, "-np", "3", "-H", "n2:2,n1:1", RANK, "pmix", "3", "n2,n2,n1")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_ssh_is_used_for_who_says_gloo(self):
        result = in_slurm(HOROVODRUN, "--gloo", "-np", "3", "-H", "n2:2,n1:1", RANK, "rendezvous", "3", "n2,n2,n1")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_a_step_is_as_good_a_place_and_standard_input_reaches_rank_0(self):
        result = in_slurm("srun", "-N1", "-n1", "--mpi=pmi2", HOROVODRUN, "-np", "4", "sh", "-c",
                          "echo $(hostname) $(cat)", stdin="1\n2\n", options=("-N2", "-n4"))
        lines = sorted(result.stdout.splitlines())
        self.assertEqual(len(lines), 4, result.stderr)
        self.assertRegex(lines[0], r"^\[0\]<stdout>:n[12] 1 2$")
        self.assertTrue(all(line.split(":")[1] in ("n1", "n2") for line in lines[1:]), lines)

    def test_of_several_components_all_run_the_ranks_of_one_job(self):
        components = ("-N1", "-n2", "-w", "n1", ":", "-N1", "-n1", "-w", "n2")
        for step in ((), ("srun", "--het-group=1", "-n1")):
            result = in_slurm(*step, HOROVODRUN, "-np", "3", RANK, "pmix", "3", "n1,n1,n2", options=components)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        shell = "echo $(hostname) $SLURM_PROCID $(cat) $1"
        result = in_slurm(HOROVODRUN, "-np", "3", "sh", "-c", shell, "sh", ":", options=components, stdin="1\n2\n")
        self.assertEqual(sorted(result.stdout.splitlines()),
                         ["[0]<stdout>:n1 0 1 2 :", "[1]<stdout>:n1 1 :", "[2]<stdout>:n2 2 :"], result.stderr)
        result = in_slurm(HOROVODRUN, "-np", "3", "sh", "-c", "[ $SLURM_PROCID != 2 ] || exit 7; exec sleep 1000",
                          options=components)
        self.assertEqual(result.returncode, 7, result.stderr)
        self.assertIn("FIRST FAILURE: rank 2 on host n2", result.stderr)
        self.assertRegex(in_slurm(HOROVODRUN, "--explain", "-np", "3", "true", options=components).stdout,
                         r"Slurm, job \d+, since SLURM_JOB_ID=\d+\n +2 hosts with 3 slots \(n1:2, n2:1\), by .*\n"
                         r"(.*\n)*launcher +srun "
                         r".*--het-group=0 -n 2 -N 1 .* true : .*--het-group=1 -n 1 -N 1 .* true\n")
        self.assertIn("-H inside a heterogeneous job", in_slurm(HOROVODRUN, "-np", "1", "-H", "n2:1", "true",
                                                                   options=components).stderr)
        self.assertIn("has room for (3, by SLURM_JOB_CPUS_PER_NODE_HET_GROUP_0=2, "
                      "SLURM_JOB_CPUS_PER_NODE_HET_GROUP_1=1)",
                      in_slurm(HOROVODRUN, "-np", "4", "true", options=components).stderr)

    def test_a_job_that_a_heterogeneous_job_has_submitted_has_its_own_hosts(self):
        """sbatch passes the variables on; here env stands for it."""
        inherited = ("SLURM_HET_SIZE=2", "SLURM_JOB_ID_HET_GROUP_0=900", "SLURM_JOB_NODELIST_HET_GROUP_0=n1")
        result = in_slurm("env", *inherited, HOROVODRUN, "-np", "4", RANK, "pmix", "3", "n1,n1,n2,n2")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_components_whose_nodes_are_not_in_order_meet_without_pmix(self):
        """Slurm's server of PMIx mixes such nodes up."""
        for components, hosts in ((("-N1", "-n1", "-w", "n2", ":", "-N1", "-n2", "-w", "n1"), "n2,n1,n1"),
                                  (("-N2", "-n2", "-w", "n1,n3", ":", "-N1", "-n1", "-w", "n2"), "n1,n3,n2")):
            result = in_slurm(HOROVODRUN, "-np", "3", RANK, "pmi", "3", hosts, options=components)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        text = in_slurm(HOROVODRUN, "--explain", "-np", "3", "true", options=components).stdout
        self.assertRegex(text, r"srun --mpi=pmi2 [^\n]*\n(.*\n)*bootstrap +pmi(.*\n)+.*"
                               r"the nodes of the components, n3, n2, are not in the order of their names")

    def test_ranks_beyond_its_room_are_refused_unless_they_may_share(self):
        result = in_slurm(HOROVODRUN, "-np", "6", "true", options=("-N2", "-n4"))
        self.assertEqual(result.returncode, 2)
        self.assertIn("more ranks than Slurm's job", result.stderr)
        result = in_slurm(HOROVODRUN, "-np", "6", "--oversubscribe", "echo", "hello", options=("-N2", "-n4"))
        self.assertEqual(result.stdout.count("<stdout>:hello"), 6, result.stderr)

    def test_the_first_failure_is_told(self):
        for how, code, words in (("exit 7", 7, "ended with exit code 7"),
                                 ("kill -9 $$", 137, "was killed by signal 9")):
            shell = f"if [ $SLURM_PROCID = 2 ]; then echo the reason >&2; {how}; fi; exec sleep 1000"
            result = in_slurm(HOROVODRUN, "-np", "4", "sh", "-c", shell)
            self.assertEqual(result.returncode, code, result.stderr)
            block = last_block(result.stderr.encode())
            self.assertRegex(block, r"FIRST FAILURE: rank 2 on host n2 \(process \d+\) " + words)
            self.assertIn("| the reason", block)

    def test_a_batch_script_is_a_place_for_it(self):
        folder = tempfile.mkdtemp(prefix="batch-", dir=BUILD)
        self.addCleanup(shutil.rmtree, folder)
        with open(f"{folder}/script", "w") as file:
            file.write(f"#!/bin/sh\nprintf '1\\n2\\n' | {HOROVODRUN} -np 4 sh -c 'echo $(hostname) $(cat)' && "
                       f"{HOROVODRUN} -np 4 {RANK} pmix 3 n1,n1,n2,n2\n")
        subprocess.run([NODES, "on", "login", "sbatch", "--quiet", "--wait", "-N2", "-n4", "--ntasks-per-node=2", "-w",
                        "n[1-2]", "-o", f"{folder}/output", f"{folder}/script"], check=True, timeout=240)
        with open(f"{folder}/output") as file:
            lines = sorted(line for line in file if "<stdout>" in line)
        self.assertEqual([line.split(":")[1].strip() for line in lines], ["n1 1 2", "n1", "n2", "n2"])

    def in_terminal(self, command, **environment):
        """Runs the command with a terminal as its standard input and output, and returns the output."""
        result = subprocess.run([NODES, "on", "n1", "script", "-qefc", command, "/dev/null"],
                                env=dict(os.environ, **environment),
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=240)
        self.assertEqual(result.returncode, 0, result.stdout)
        return result.stdout.replace("\r", "")

    def test_a_shell_in_a_step_is_a_place_for_it(self):
        ours = f"printf \"1\\\\n2\\\\n\" | {HOROVODRUN} -np 4 sh -c \"echo \\$(hostname) \\$(cat)\""
        for step in ("srun -N2 -n4 --ntasks-per-node=2 -w n[1-2] --pty",
                     "salloc --quiet -N2 -n4 --ntasks-per-node=2 -w n[1-2] srun -N1 -n1 --pty"):
            # srun starts a shell for each task, and only that of task 0 has the terminal. The others end at once,
            # because each of them would run the command, too.
            text = self.in_terminal(f"{step} bash -c '[ $SLURM_PROCID = 0 ] || exit 0; {ours}'")
            self.assertEqual(sorted(re.findall(r"\[(\d)\]<stdout>:(.*)", text)),
                             [("0", "n1 1 2"), ("1", "n1"), ("2", "n2"), ("3", "n2")], text)

    def test_pmi2_is_used_where_there_is_no_pmix_for_us_on_the_nodes(self):
        arguments = (HOROVODRUN, "-np", "2", RANK, "pmi", "3", "n3,n3")
        # Here srun does not know PMIx.
        with tempfile.TemporaryDirectory(dir=BUILD) as folder:
            with open(f"{folder}/srun", "w") as file:
                file.write('#!/bin/sh\n[ "$*" != --mpi=list ] || { echo "MPI plugin types are... none pmi2 '
                           'cray_shasta"; exit; }\n'
                           'exec /usr/bin/srun "$@"\n')
            os.chmod(f"{folder}/srun", 0o755)
            result = in_slurm(*arguments, options=("-N1", "-n2", "-w", "n3"), PATH=f"{folder}:{os.environ['PATH']}")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        # Here the node n3 cannot open our PMIx plugin. horovodrun is started in the job, then in a step of the job.
        plugin = os.path.join(BUILD, "lib", "libhorovod_pmix.so")
        nodes("on", "n3", "mount", "--bind", "/dev/null", plugin)
        try:
            for step in ((), ("srun", "-N1", "-n1")):
                result = in_slurm(*step, *arguments, options=("-N1", "-n2", "-w", "n3"))
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            text = in_slurm(HOROVODRUN, "--explain", "-np", "2", "true", options=("-N1", "-n2", "-w", "n3")).stdout
            self.assertRegex(text, r"bootstrap +pmi: srun --mpi=pmi2 is its server\n +not pmix: .*libhorovod_pmix")
        finally:
            nodes("on", "n3", "umount", plugin)

    def test_hosts_outside_of_it_are_refused(self):
        result = in_slurm(HOROVODRUN, "-np", "2", "-H", "n3:2", "true")
        self.assertEqual(result.returncode, 2)
        self.assertIn("the host n3 is not in the job", result.stderr)

    def test_is_explained(self):
        text = in_slurm(HOROVODRUN, "--explain", "-np", "4", "true").stdout
        self.assertRegex(text, r"scheduler +Slurm, job \d+, since SLURM_JOB_ID=\d+\n +2 hosts with 4 slots \(n1:2, "
                               r"n2:2\), by "
                               r"SLURM_JOB_NODELIST\n(.*\n)? +put back into the queue by `scontrol requeue \d+`")
        self.assertRegex(text, r"launcher +srun --mpi=pmix .* -n 4 .* true\n +since SLURM_JOB_ID=")
        self.assertRegex(text, r"bootstrap +pmix: ")
        text = on_n1("--explain", "-H", "n1:2,n2:2").stdout
        self.assertRegex(text, r"launcher +4 ranks below agents of ours")
        self.assertRegex(text, r"n2, 2 ranks: .*agent n2\n")
        self.assertRegex(text, r"bootstrap +rendezvous: ")

    def test_nothing_is_left_however_horovodrun_ends(self):
        for one in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
            command = [NODES, "on", "n1", "salloc", "--quiet", "-N2", "-n4", "--ntasks-per-node=2", HOROVODRUN, "-np",
                       "4", "sh", "-c", "echo ready; exec sleep 1000"]
            job = ClusterJob("", "", whole=command)
            job.wait_for_lines(4)
            os.kill(job.launcher(), one)
            job.finish()
            job.assert_nothing_is_left(self)


@unittest.skipUnless(os.path.exists(os.path.join(BUILD, "lib", "libhorovod_pmix.so")), "built without PMIx")
class CancelledInSlurm(LauncherTest):
    """No matter who ends a job or a step, no process of the job is left on any node."""

    def start(self, *options):
        """Starts horovodrun with ranks on two nodes; `options` is the command that starts it, such as salloc."""
        shell = "echo ready $SLURM_JOB_ID.$SLURM_STEP_ID; exec sleep 1000"
        job = ClusterJob("", "", whole=[NODES, "on", "n1", *options, HOROVODRUN, "-np", "4", "sh", "-c", shell])
        self.addCleanup(job.clean_up)
        return job, job.wait_for_lines(4)[0].split()[-1].decode()

    def end(self, job, step, *how):
        nodes("on", "login", *how)
        self.assertNotEqual(job.finish(), 0)
        job.assert_nothing_is_left(self)
        limit = time.monotonic() + LIMIT_SECONDS
        while step + " " in self.steps_of(step.split(".")[0]):  # Slurm notices its end a little later
            self.assertLess(time.monotonic(), limit, f"Slurm still has the step {step}")

    def steps_of(self, job):
        return subprocess.run([NODES, "on", "login", "squeue", "-h", "-s", "-j", job], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, check=False).stdout

    def test_the_job_of_salloc(self):
        job, step = self.start("salloc", "--quiet", "-N2", "-n4", "--ntasks-per-node=2")
        self.end(job, step, "scancel", step.split(".")[0])

    def test_the_step_of_the_ranks(self):
        job, step = self.start("salloc", "--quiet", "-N2", "-n4", "--ntasks-per-node=2")
        self.end(job, step, "scancel", step)

    def test_the_step_around_horovodrun(self):
        job, step = self.start("salloc", "--quiet", "-N2", "-n4", "--ntasks-per-node=2", "srun", "-N1", "-n1")
        self.end(job, step, "scancel", step.split(".")[0] + ".0")

    def test_a_batch_job(self):
        # sbatch hands on the environment, which contains the mark of this job's processes. The output comes through
        # a named pipe.
        folder = tempfile.mkdtemp(prefix="batch-", dir=BUILD)
        self.addCleanup(shutil.rmtree, folder)
        with open(f"{folder}/script", "w") as file:
            file.write(f'#!/bin/sh\nexec {HOROVODRUN} -np 4 sh -c "echo ready \\$SLURM_JOB_ID.\\$SLURM_STEP_ID; exec '
                       f'sleep 1000"\n')
        os.mkfifo(f"{folder}/output")
        job = ClusterJob("", "", whole=["sh", "-c", 'exec 3<>"$0/output"; "$@" || exit; exec cat "$0/output"', folder,
                                        NODES, "on",
                                        "login", "sbatch", "--quiet", "-N2", "-n4", "--ntasks-per-node=2", "-o",
                                        f"{folder}/output", f"{folder}/script"])
        self.addCleanup(job.clean_up)
        step = job.wait_for_lines(4)[0].split()[-1].decode()
        nodes("on", "login", "scancel", step.split(".")[0])
        wait_until_none_is_left(lambda: [pid for pid in marked_processes(job.mark) if pid != job.front.pid])
        job.front.kill()
        job.finish()

    def test_ranks_that_are_killed(self):
        job, step = self.start("salloc", "--quiet", "-N2", "-n4", "--ntasks-per-node=2")
        self.end(job, step, "scancel", "--signal=KILL", step)


class WithMpi(EndTest):
    """Every test repeats all checks of its launcher HVD_ROUNDS times."""

    def start(self, mpiexec, *arguments):
        if subprocess.run(["which", mpiexec], stdout=subprocess.DEVNULL).returncode != 0:
            self.skipTest(f"{mpiexec} is not installed (tests/cluster/nodes prepare)")
        job = ClusterJob("", "", whole=[NODES, "on", "n1", HOROVODRUN, "--mpi", *arguments], HOROVOD_MPIEXEC=mpiexec,
                         HOROVOD_PLUGIN_PATH=os.path.join(BUILD, "lib"))
        self.addCleanup(job.clean_up)
        return job

    def start_waiting(self, mpiexec, *more):
        job = self.start(mpiexec, *more, "-np", "2", "-H", "n1:1,n2:1", "sh", "-c", WAIT)
        job.wait_for_lines(1, b"[0]<stdout>:ready")
        job.wait_for_lines(1, b"[1]<stdout>:ready")
        return job

    def rank_of(self, job, number):
        """The pid of a rank: its parent is a keeper, it is in the keeper's session, and it leads its process group,
        which the rank's own children do not. Tries again, because during an exec a process shows no environment."""
        limit = time.monotonic() + LIMIT_SECONDS
        while time.monotonic() < limit:
            for pid in marked_processes(job.mark):
                parent = parent_of(pid)
                if {b"PMI_RANK=%d" % number, b"PMIX_RANK=%d" % number} & set(read(pid, "environ").split(b"\0")) and \
                        is_keeper(parent) and family_of(pid) == (parent, pid, parent):
                    return pid
        raise AssertionError(f"there is no rank {number}")

    def check(self, mpiexec, bootstrap, *more):
        for _ in range(int(os.environ.get("HVD_ROUNDS", "1"))):
            self.meet(mpiexec, bootstrap, *more)
            self.write_words(mpiexec, *more)
            self.carry_everything(mpiexec, *more)
            self.carry_input(mpiexec, *more)
            self.die_at_once(mpiexec, *more)
            self.leave_with_a_failure(mpiexec, *more)
            self.die(signal.SIGSEGV, mpiexec, *more)
            self.end_by_signal(signal.SIGTERM, mpiexec, *more)
            self.end_by_signal(signal.SIGKILL, mpiexec, *more)

    def meet(self, mpiexec, bootstrap, *more):
        job = self.start(mpiexec, *more, "-np", "3", "-H", "n1:2,n2:1", RANK, bootstrap, "3", "n1,n1,n2")
        code = job.finish()
        if b"MPI support has not been built" in job.errors:
            self.skipTest("built without MPI")
        job.assert_nothing_is_left(self)
        self.assertEqual(code, 0, job.output + job.errors)

    def write_words(self, mpiexec, *more):
        """Ranks write unbuffered, word by word, and more than a launcher reads at once. Every line must have exactly
        one label."""
        program = ("import sys\nfor i in range(500): print('line', i, 'x' * (i % 200), flush=True)\n"
                   "print('no end', end='')")
        job = self.start(mpiexec, *more, "-np", "4", "-H", "n1:2,n2:2", sys.executable, "-u", "-c", program)
        self.assertEqual(job.finish(), 0, job.errors)
        job.assert_nothing_is_left(self)
        lines = ["line %d %s" % (i, "x" * (i % 200)) for i in range(500)] + ["no end"]
        for rank in range(4):
            label = b"[%d]<stdout>:" % rank
            of_rank = [line[len(label):].decode() for line in job.output.splitlines() if line.startswith(label)]
            self.assertEqual(of_rank, lines)

    def carry_everything(self, mpiexec, *more):
        job = self.start(mpiexec, *more, "-np", "2", "-H", "n1:1,n2:1", *EVERYTHING, *WORDS)
        self.assertEqual(job.finish(), 0, job.errors)
        job.assert_nothing_is_left(self)
        for rank in range(2):
            self.assertEqual(lines_of(rank, job.output), ALL_OF_IT)

    def carry_input(self, mpiexec, *more):
        text = "".join(f"line {number}\n" for number in range(100000))
        wanted = subprocess.run(["cksum"], input=text, stdout=subprocess.PIPE, text=True).stdout.strip()
        result = on_n1("--mpi", *more, "-np", "2", "-H", "n2:1,n1:1", "cksum", stdin=text, HOROVOD_MPIEXEC=mpiexec)
        self.assertEqual(sorted(result.stdout.splitlines()), ["[0]<stdout>:" + wanted, "[1]<stdout>:4294967295 0"],
                         result.stderr)

    def die_at_once(self, mpiexec, *more):
        shell = "echo the reason >&2; if [ ${PMI_RANK:-$PMIX_RANK} = 1 ]; then exit 7; fi; exec sleep 1000"
        job = self.start(mpiexec, *more, "-np", "2", "-H", "n1:1,n2:1", "sh", "-c", shell)
        self.end(job, 7, "rank 1 on host n2 ")
        self.assertIn("ended with exit code 7\n", last_block(job.errors))
        self.assertIn("| the reason", last_block(job.errors))

    def leave_with_a_failure(self, mpiexec, *more):
        """A rank leaves in order, as by sys.exit(7), while the others wait for it. It must not wait in MPI until they
        have failed, too."""
        job = self.start(mpiexec, *more, "-np", "4", "-H", "n1:2,n2:2", VICTIM, "agreement", "leave7", "3")
        self.end(job, 7, "rank 3 on host n2 ")

    def die(self, how, mpiexec, *more):
        """A rank dies and leaves a background process that holds the rank's output open. A launcher waits for the end
        of that output."""
        job = self.start_waiting(mpiexec, *more)
        os.kill(self.rank_of(job, 1), how)
        self.end(job, 128 + how, "rank 1 on host n2 ")
        self.assertIn(f"was killed by signal {how:d} ", last_block(job.errors))

    def end_by_signal(self, one, mpiexec, *more):
        job = self.start_waiting(mpiexec, *more)
        os.kill(job.launcher(), one)
        job.finish()
        job.assert_nothing_is_left(self)

    def test_of_mpich_ranks_meet_and_failures_are_told(self):
        self.check("mpiexec.hydra", "pmi")

    def test_of_open_mpi_4_ranks_meet_and_failures_are_told(self):
        self.check("orterun", "pmix")

    def test_of_open_mpi_4_is_ended_where_it_would_not_end(self):
        self.die(signal.SIGKILL, "orterun", "--mpi-args", "--mca orte_abort_on_non_zero_status 0")

    def test_of_open_mpi_5_ranks_meet_and_failures_are_told(self):
        prefix = os.path.realpath(os.path.join(HERE, "..", "..", "build", "cluster-venv"))
        self.check(os.path.join(prefix, "bin", "prterun"), "pmix", "--mpi-args", "--prefix " + prefix)


class WithoutANode(EndTest):
    """Run these tests in a cluster of their own, because the node is missing in Slurm afterwards."""

    def test_when_a_node_dies(self):
        job = ClusterJob("n1:2,n2:2", WAIT)
        job.wait_for_lines(4)
        nodes("kill", "n2")
        self.end(job, 137, "rank 2 on host n2 ")

    def test_when_a_node_is_cut_off(self):
        job = ClusterJob("n1:2,n2:2", WAIT, HOROVOD_PEER_TIMEOUT="4")
        job.wait_for_lines(4)
        nodes("cut", "n2")
        try:
            self.end(job, 137, "rank 2 on host n2 ")
            # The words depend on which of the two first notices the loss: horovodrun, or the agent, which then ends.
            self.assertRegex(job.errors.decode(), "was lost: (nothing comes from its host any more|its agent is "
                                                  "gone|the connection to its agent ended)")
        finally:
            nodes("mend", "n2")


if __name__ == "__main__":
    enter(3, BUILD, [BUILD, *sys.argv[1:]])
    unittest.main()
