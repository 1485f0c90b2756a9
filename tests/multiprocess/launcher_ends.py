"""However a job ends, horovodrun's exit code and last words must be right, and no process or file may be left."""
import os
import signal
import sys
import unittest

from launcher_harness import (HOROVODRUN, Job, LauncherTest, ROUNDS, children_of, last_block, listener, receiver,
                              wait_for_end, without_notices)

WAIT = "echo ready $$; exec sleep 1000"


def make_memory_group(limit_bytes):
    """Makes a memory control group with this limit below our own group. Skips the test if we have no right to make
    one."""
    try:
        with open("/proc/self/cgroup") as file:
            groups = dict(line.strip().split(":", 2)[1:] for line in file)
        old = "memory" in groups
        mount = "/sys/fs/cgroup/memory" if old else "/sys/fs/cgroup"
        group = f"{mount}{groups['memory' if old else '']}/hvd-test-{os.getpid()}"
        os.mkdir(group)
        with open(group + ("/memory.limit_in_bytes" if old else "/memory.max"), "w") as file:
            file.write(str(limit_bytes))
        if old:
            try:
                with open(group + "/memory.memsw.limit_in_bytes", "w") as file:
                    file.write(str(limit_bytes))
            except OSError:
                pass  # this kernel does not limit swap
        return group
    except (OSError, KeyError) as error:
        raise unittest.SkipTest(f"no memory control group can be made here: {error}")


class Ends(LauncherTest):
    def rounds(self, kinds=1):
        """The numbers of the rounds. Each of so many kinds of a test has one at least."""
        return range(max(ROUNDS, kinds))

    def test_with_the_code_of_the_rank_that_failed_first(self):
        for _ in self.rounds():
            job = Job(4, 'if [ $HOROVOD_RANK = 3 ]; then echo "the reason" >&2; exit 7; fi; exec sleep 1000')
            self.finish(job, 7)
            block = last_block(job.errors)
            self.assertIn("FIRST FAILURE: rank 3 on host ", block)
            self.assertIn("ended with exit code 7", block)
            self.assertIn("| the reason", block)
            self.assertIn("Process 3 exit with status code 7.", job.errors.decode())
            self.assertEqual(job.errors.decode().count("FIRST FAILURE"), 1)

    def test_when_a_rank_is_killed(self):
        for number in self.rounds(kinds=3):
            job = Job(3, WAIT)
            victim = number % 3
            line, = [l for l in job.wait_for_lines(3) if l.startswith(b"[%d]" % victim)]
            pid = int(line.split()[-1])
            os.kill(pid, signal.SIGKILL)
            self.finish(job, 128 + signal.SIGKILL)
            block = last_block(job.errors)
            self.assertIn(f"FIRST FAILURE: rank {victim} on host ", block)
            self.assertIn(f"(process {pid}) was killed by signal 9 (SIGKILL)", block)
            self.assertNotIn("likely reason: out of memory.", block)

    def test_with_the_rank_that_ended_first_while_the_agent_did_not_look(self):
        # Each rank leaves a child that nobody reaps. Therefore the first end that the agent notices is that of an
        # unknown process.
        ranks = [sys.executable, "-c", "import os, signal\n"
                 "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n"
                 "child = os.fork()\n"
                 "if child == 0: os._exit(0)\n"
                 "os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)\n"
                 "print('ready', os.environ['HOROVOD_RANK'], os.getpid(), flush=True)\n"
                 "signal.sigwait([signal.SIGUSR1])\n"
                 "os._exit(5 + int(os.environ['HOROVOD_RANK']))"]
        for number in self.rounds(kinds=3):
            job = Job(3, ranks)
            processes = dict(line.split()[-2:] for line in job.wait_for_lines(3))
            agent = job.agent()
            os.kill(agent, signal.SIGSTOP)
            job.wait_for_state(agent, "T")
            order = [[1, 0, 2], [2, 1, 0], [0, 2, 1]][number % 3]
            for rank in order:
                process = int(processes[b"%d" % rank])
                with_end = os.pidfd_open(process)
                os.kill(process, signal.SIGUSR1)
                wait_for_end(with_end, f"rank {rank}")
                os.close(with_end)
            os.kill(agent, signal.SIGCONT)
            self.finish(job, 5 + order[0])
            self.assertIn(f"FIRST FAILURE: rank {order[0]} on host ", last_block(job.errors))

    def test_with_the_rank_named_that_had_left_with_0_before_the_failure(self):
        ranks = [sys.executable, "-c", "import os, signal\n"
                 "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n"
                 "rank = int(os.environ['HOROVOD_RANK'])\n"
                 "print('ready', rank, os.getpid(), flush=True)\n"
                 "signal.sigwait([signal.SIGUSR1])\n"
                 "os._exit(0 if rank == 1 else 7)"]
        for left_first in (True, False):
            job = Job(3, ranks)
            processes = dict(line.split()[-2:] for line in job.wait_for_lines(3))
            for rank in (1, 0) if left_first else (0,):
                process = int(processes[b"%d" % rank])
                with_end = os.pidfd_open(process)
                os.kill(process, signal.SIGUSR1)
                wait_for_end(with_end, f"rank {rank}")
                os.close(with_end)
            self.finish(job, 7)
            block = last_block(job.errors)
            self.assertIn("FIRST FAILURE: rank 0 on host ", block)
            self.assertEqual(" rank 1 on host " in block and "had ended with exit code 0 before it" in block,
                             left_first, block)

    def test_when_horovodrun_is_killed(self):
        for _ in self.rounds():
            job = Job(3, "(setsid sleep 1000 &) ; " + WAIT)
            job.wait_for_lines(3)
            job.watch(job.agent())
            os.kill(job.front.pid, signal.SIGKILL)
            self.finish(job, -signal.SIGKILL)

    def test_when_horovodrun_is_killed_while_it_starts(self):
        for _ in self.rounds():
            job = Job(3, WAIT)
            job.watch(job.agent())
            os.kill(job.front.pid, signal.SIGKILL)
            self.finish(job, -signal.SIGKILL)

    def test_when_the_agent_is_killed(self):
        for _ in self.rounds():
            job = Job(3, "(setsid sleep 1000 &) ; " + WAIT)
            job.wait_for_lines(3)
            os.kill(job.agent(), signal.SIGKILL)
            self.finish(job, 128 + signal.SIGKILL)
            self.assertIn("the agent", job.errors.decode())

    def test_when_the_agent_is_killed_while_it_starts(self):
        for _ in self.rounds():
            job = Job(3, WAIT)
            os.kill(job.agent(), signal.SIGKILL)
            self.finish(job, 128 + signal.SIGKILL)

    def test_by_the_signal_that_horovodrun_gets(self):
        for number in self.rounds(kinds=3):
            ending = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)[number % 3]
            job = Job(3, "(setsid sleep 1000 &) ; " + WAIT)
            job.wait_for_lines(3)
            job.front.send_signal(ending)
            self.finish(job, -ending)
            self.assertNotIn("FIRST FAILURE", job.errors.decode())

    def test_at_once_by_a_second_signal(self):
        for _ in self.rounds():
            job = Job(2, receiver(signal.SIGTERM), grace="1000")
            job.wait_for_lines(2)
            job.front.send_signal(signal.SIGTERM)
            job.wait_for_lines(2, b"SIGTERM")
            job.front.send_signal(signal.SIGTERM)
            self.finish(job, -signal.SIGTERM)

    def test_after_a_rank_that_saves_when_it_is_told_to_and_whose_workers_live_on(self):
        for _ in self.rounds():
            job = Job(2, "exec " + listener(signal.SIGTERM, code=7), grace="1000")
            job.wait_for_lines(2)
            job.front.send_signal(signal.SIGTERM)
            self.finish(job, 7)

    def test_with_the_rank_below_a_shell_that_a_warning_ended(self):
        job = Job(1, listener(signal.SIGUSR1, code=6) + "; exit $?")
        job.wait_for_lines(1)
        shell, = children_of(job.agent())
        end_of_shell = os.pidfd_open(shell)
        os.kill(shell, signal.SIGUSR1)
        wait_for_end(end_of_shell, "the shell")
        os.close(end_of_shell)
        job.front.send_signal(signal.SIGUSR1)
        self.finish(job, 6)

    def test_with_the_code_that_ranks_choose_when_they_are_told_to_end(self):
        for _ in self.rounds():
            job = Job(2, "trap 'kill $child; exit 99' TERM; sleep 1000 & child=$!; echo ready; wait",
                      grace="1000")
            job.wait_for_lines(2)
            job.front.send_signal(signal.SIGTERM)
            self.finish(job, 99)

    def test_though_a_rank_ignores_the_request_to_end(self):
        for _ in self.rounds():
            job = Job(3, "trap '' TERM INT; if [ $HOROVOD_RANK = 1 ]; then exit 3; fi; sleep 1000", grace="0.2")
            self.finish(job, 3)

    def test_though_all_ranks_ignore_the_request_and_horovodrun_is_killed(self):
        for _ in self.rounds():
            job = Job(3, "trap '' TERM INT HUP; (setsid sleep 1000 &); echo ready; sleep 1000", grace="0.2")
            job.wait_for_lines(3)
            job.watch(job.agent())
            os.kill(job.front.pid, signal.SIGKILL)
            self.finish(job, -signal.SIGKILL)

    def test_though_a_rank_is_stopped(self):
        for _ in self.rounds():
            job = Job(3, "echo ready $$; if [ $HOROVOD_RANK = 2 ]; then read line; exit 5; fi; kill -STOP $$; sleep "
                         "1000",
                      grace="1000")
            # Rank 2 reads the end of its input and fails. The other ranks are stopped before or after that. They must
            # be continued, so that they can end when they are asked to: no rank is killed here.
            self.finish(job, 5)

    def test_with_what_successful_ranks_left_in_the_background(self):
        daemon = "(trap '' TERM HUP; setsid sh -c 'setsid sleep 1000 & setsid sleep 1000 &' &) ; echo ready"
        for _ in self.rounds():
            self.finish(Job(2, daemon, grace="0.2"), 0)

    def test_though_something_forks_all_the_time(self):
        forking = ("trap '' TERM; fork() { (trap '' TERM; setsid sh -c 'sleep 0.01' ; fork) & }; fork; fork; "
                   "echo ready; sleep 1000")
        for _ in self.rounds():
            job = Job(2, forking, grace="0.2")
            job.wait_for_lines(2)
            job.front.send_signal(signal.SIGTERM)
            self.finish(job, -signal.SIGTERM)

    def test_when_the_reader_of_its_output_goes(self):
        for number in self.rounds(kinds=2):
            # Alternately ranks that print without end and ranks that print nothing.
            job = Job(2, "yes" if number % 2 == 0 else WAIT)
            job.wait_for_lines(2, b"")
            job.front.stdout.close()
            job.front.stdout = open(os.devnull, "rb")
            self.finish(job, -signal.SIGPIPE)
            self.assertEqual(without_notices(job.errors), b"")

    def test_when_a_rank_asks_for_the_end_through_the_store(self):
        client = os.environ["HVD_STORE_CLIENT"]
        for _ in self.rounds():
            job = Job(3, f'if [ $HOROVOD_RANK = 1 ]; then {client} abort; fi; exec sleep 1000')
            self.finish(job, 1)
            block = last_block(job.errors)
            self.assertIn("FIRST FAILURE: rank 1 on host ", block)
            self.assertIn("asked for the end of the job: no more work", block)

    def test_with_the_memory_limit_named_when_a_rank_wants_more(self):
        group = make_memory_group(300 << 20)  # all other tests need less memory, also under sanitizers
        try:
            grow = "a = b'x' * (1 << 30)"
            job = Job(2, "", whole_command=["sh", "-c", f'echo 0 > {group}/cgroup.procs; exec "$@"', "sh", HOROVODRUN,
                                            "-np", "2", "sh", "-c",
                          f'if [ $HOROVOD_RANK = 1 ]; then exec {sys.executable} -c "{grow}"; fi; exec sleep 1000'])
            self.finish(job, 128 + signal.SIGKILL)
        finally:
            os.rmdir(group)
        block = last_block(job.errors)
        self.assertIn("FIRST FAILURE: rank 1 on host ", block)
        self.assertIn("likely reason: out of memory. ", block)
        self.assertIn("its memory limit is 300 MiB", block)

    @unittest.skipUnless(os.environ.get("HVD_PMIX_CLIENT"), "built without PMIx")
    def test_when_a_rank_asks_for_the_end_through_pmix(self):
        client = os.environ["HVD_PMIX_CLIENT"]
        for _ in self.rounds():
            job = Job(3, f'if [ $HOROVOD_RANK = 1 ]; then exec {client} abort; fi; exec sleep 1000')
            self.finish(job, 9)
            block = last_block(job.errors)
            self.assertIn("FIRST FAILURE: rank 1 on host ", block)
            self.assertIn("asked for the end of the job: no more work", block)

    @unittest.skipUnless(os.environ.get("HVD_PMIX_CLIENT"), "built without PMIx")
    def test_though_processes_died_while_they_connected_to_the_pmix_server(self):
        # The library's PMIx server cannot end properly after that, because its records are damaged
        # (native/pmix/server.cpp).
        for _ in self.rounds():
            self.finish(Job(2, [os.environ["HVD_PMIX_CLIENT"], "lose"]), 0)


if __name__ == "__main__":
    unittest.main()
