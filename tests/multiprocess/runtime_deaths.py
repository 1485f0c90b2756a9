"""A rank comes to harm, in every phase of a job and by every kind of harm: the job must end with the right message."""
import os
import re
import signal
import unittest

from launcher_harness import ROUNDS, Job, LauncherTest

VICTIM = os.environ["HVD_VICTIM"]
RANKS = 3
PHASES = ("start", "agreement", "inside", "between", "shutdown")
KINDS = ("kill", "exit7", "exit0", "abort", "stop")
WAYS = ("environment", "pmix") if os.environ.get("HVD_HAS_PMIX") else ("environment",)


class Deaths(LauncherTest):
    def harm(self, phase, kind, codes, **environment):
        """Runs the rounds, each with another victim. The job must end with one of the codes. The victims differ between
        phases and kinds, so that each rank is one, also where each test has one round."""
        for number in range(ROUNDS):
            victim = (PHASES.index(phase) + KINDS.index(kind) + number) % RANKS
            job = Job(RANKS, [VICTIM, phase, kind, str(victim)], **environment)
            code = job.finish()
            job.assert_nothing_is_left(self)
            self.assertIn(code, codes, f"{phase} {kind} victim {victim}: {job.errors.decode(errors='replace')}")
            yield victim, job

    def check(self, phase, kind, codes, says=(), **environment):
        for victim, job in self.harm(phase, kind, codes, **environment):
            errors = job.errors.decode(errors="replace")
            for text in says:
                self.assertIn(text.format(victim=victim), errors)

    KILLED = (128 + signal.SIGKILL,)
    ABORTED = (128 + signal.SIGABRT,)
    KILL_SAYS = ("FIRST FAILURE: rank {victim} on host ", "was killed by signal 9 (SIGKILL)")

    ABSENT = (f"Of {RANKS} ranks these did not come to the meeting by ", ": {victim}. ")

    def test_start_kill(self):
        self.check("start", "kill", self.KILLED, self.KILL_SAYS)

    def test_start_exit7(self):
        self.check("start", "exit7", (7,), ("FIRST FAILURE: rank {victim} on host ",))

    def test_start_exit0(self):
        # A rank that exits with 0 has not failed. The others name it when the start has waited long enough. (Without
        # PMIx, horovodrun's own store knows it at once.)
        self.check("start", "exit0", (3,), self.ABSENT if "pmix" in WAYS else ("rank {victim} ",),
                   HOROVOD_START_TIMEOUT="10")

    def test_start_abort(self):
        self.check("start", "abort", self.ABORTED)

    def test_start_stop(self):
        self.check("start", "stop", (3,), self.ABSENT, HOROVOD_START_TIMEOUT="10")

    def harm_in_fence(self, kind, codes, says=()):
        """The victim waits in hvd_init for a rank that has not come yet."""
        for number in range(max(ROUNDS, len(WAYS))):
            victim = number % RANKS
            way = WAYS[number % len(WAYS)]
            job = Job(RANKS, [VICTIM, "fence", kind, str(victim)], HOROVOD_BOOTSTRAP=way, HOROVOD_LOG_LEVEL="trace",
                      HOROVOD_START_TIMEOUT="10" if kind in ("exit0", "stop") else "60")
            job.wait_for_lines(1, b"<stdout>:late")
            line, = job.wait_for_lines(1, b"<stdout>:victim ")
            # The next step after this message is the wait for the others.
            last = b"put" if way == "pmix" else b"begin the exchange"
            job.wait_for_lines(1, b"[%d]: bootstrap %s: %s hvd.meet" % (victim, way.encode(), last))
            process = int(line.split()[-1])
            job.wait_for_state(process, "S")
            os.kill(process, signal.SIGUSR1)
            if kind == "exit0":
                job.wait_for_state(process, "")
            if kind == "stop":
                job.wait_for_state(process, "T")
            if kind in ("exit0", "stop"):
                with open(job.folder + "/go", "w"):
                    pass
            code = job.finish()
            os.unlink(job.folder + "/go")
            job.assert_nothing_is_left(self)
            errors = job.errors.decode(errors="replace")
            self.assertIn(code, codes, f"fence {kind} by {way}, victim {victim}: {errors}")
            for text in says:
                self.assertIn(text.format(victim=victim), errors, way)

    def test_fence_kill(self):
        self.harm_in_fence("kill", self.KILLED, self.KILL_SAYS)

    def test_fence_exit7(self):
        self.harm_in_fence("exit7", (7,), ("FIRST FAILURE: rank {victim} on host ",))

    def test_fence_exit0(self):
        self.harm_in_fence("exit0", (3,))

    def test_fence_abort(self):
        self.harm_in_fence("abort", self.ABORTED)

    def test_fence_stop(self):
        # It depends on how much of the fence the victim had done whether the others pass the fence.
        self.harm_in_fence("stop", (3,), ("horovodrun: rank {victim} on host ", "was stopped by signal 19 (SIGSTOP)"))

    def test_agreement_kill(self):
        self.check("agreement", "kill", self.KILLED, self.KILL_SAYS)

    def test_agreement_exit7(self):
        self.check("agreement", "exit7", (7,))

    def test_agreement_exit0(self):
        self.check("agreement", "exit0", (3,), ("rank {victim} (host ",))

    def test_agreement_abort(self):
        self.check("agreement", "abort", self.ABORTED)

    def test_agreement_stop(self):
        self.check("agreement", "stop", (3,), ("Missing ranks:", "process is stopped"),
                   HOROVOD_STALL_CHECK_TIME_SECONDS="3", HOROVOD_STALL_SHUTDOWN_TIME_SECONDS="6")

    def test_inside_kill(self):
        self.check("inside", "kill", self.KILLED, self.KILL_SAYS)

    def test_inside_exit7(self):
        self.check("inside", "exit7", (7,))

    def test_inside_exit0(self):
        self.check("inside", "exit0", (3,), ("rank {victim} (host ",))

    def test_inside_abort(self):
        self.check("inside", "abort", self.ABORTED)

    def test_inside_stop(self):
        self.check("inside", "stop", (3,), ("Missing ranks:",), HOROVOD_STALL_CHECK_TIME_SECONDS="3",
                   HOROVOD_STALL_SHUTDOWN_TIME_SECONDS="6")

    def test_between_kill(self):
        self.check("between", "kill", self.KILLED, self.KILL_SAYS)

    def test_between_exit7(self):
        self.check("between", "exit7", (7,))

    def test_between_exit0(self):
        self.check("between", "exit0", (3,))

    def test_between_abort(self):
        self.check("between", "abort", self.ABORTED)

    def test_between_stop(self):
        self.check("between", "stop", (3,), ("Missing ranks:", "process is stopped"),
                   HOROVOD_STALL_CHECK_TIME_SECONDS="3", HOROVOD_STALL_SHUTDOWN_TIME_SECONDS="6")

    def test_shutdown_kill(self):
        self.check("shutdown", "kill", self.KILLED, self.KILL_SAYS)

    def test_shutdown_exit7(self):
        self.check("shutdown", "exit7", (7,))

    def test_shutdown_exit0(self):
        self.check("shutdown", "exit0", (0,))

    def test_shutdown_abort(self):
        self.check("shutdown", "abort", self.ABORTED)


class Stops(LauncherTest):
    """A stopped rank is named, but nothing else happens: a long evaluation looks the same."""

    def stop(self, phase, victim=1):
        job = Job(RANKS, [VICTIM, phase, "stop", str(victim)], HOROVOD_STALL_CHECK_TIME_SECONDS="1")
        line, = job.wait_for_lines(1, b"was stopped by signal 19 (SIGSTOP)", of_errors=True)
        self.assertIn(b"horovodrun: rank %d on host " % victim, line)
        return job, int(re.search(rb"\(process (\d+)\)", line)[1])

    def test_rank_is_named_and_the_job_goes_on(self):
        for phase in ("agreement", "inside"):
            job, _ = self.stop(phase)
            job.wait_for_lines(1, b"process is stopped", of_errors=True)
            self.assertIn(b"Missing ranks:", job.errors)
            self.assertIsNone(job.front.poll())
            job.front.send_signal(signal.SIGTERM)
            job.finish()
            job.assert_nothing_is_left(self)

    def test_rank_that_stops_as_its_first_act_is_named_with_its_process(self):
        job = Job(8, "kill -STOP $$")
        lines = job.wait_for_lines(8, b"was stopped by signal 19 (SIGSTOP)", of_errors=True)
        processes = {int(re.search(rb"\(process (\d+)\) .*\(kill -CONT \1\)", line)[1]) for line in lines}
        self.assertEqual(len(processes), 8, lines)
        self.assertTrue(all(processes), lines)  # kill(0) would signal the user's own processes
        for process in processes:
            os.kill(process, signal.SIGCONT)
        self.finish(job, 0)

    def test_rank_that_is_continued_is_forgiven(self):
        job, victim = self.stop("between")
        job.wait_for_lines(1, b"process is stopped", of_errors=True)
        os.kill(victim, signal.SIGCONT)
        self.finish(job, 0)

    def test_rank_that_has_not_shut_down_keeps_nobody_else(self):
        # Rank 0 has to agree to the end. If it does not answer for 10 s, a rank leaves alone. Another rank may learn of
        # that before its own 10 s are over.
        for victim in (1, 0):
            job, process = self.stop("shutdown", victim)
            if victim == 0:
                job.wait_for_lines(1, b"this rank left alone", of_errors=True)
                self.assertIn(b"process is stopped (SIGSTOP or a debugger) did not answer", job.errors)
            for other in job.ranks():
                if other != process:
                    job.wait_for_state(other, "")
            self.assertIsNone(job.front.poll())
            os.kill(process, signal.SIGCONT)
            self.finish(job, 0)


if __name__ == "__main__":
    unittest.main()
