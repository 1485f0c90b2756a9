"""What becomes of a job when a rank comes to harm: every phase with every kind of harm."""
import os
import random
import signal
import unittest

from launcher_harness import ROUNDS, Job, LauncherTest

VICTIM = os.environ["HVD_VICTIM"]
RANKS = 3


class Deaths(LauncherTest):
    def harm(self, phase, kind, codes, **environment):
        """Runs the rounds with another victim each; the job must end with one of the codes."""
        draw = random.Random(f"{phase} {kind}")
        for _ in range(ROUNDS):
            victim = draw.randrange(RANKS)
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

    def test_start_kill(self):
        self.check("start", "kill", self.KILLED, self.KILL_SAYS)

    def test_start_exit7(self):
        self.check("start", "exit7", (7,), ("FIRST FAILURE: rank {victim} on host ",))

    def test_start_exit0(self):
        # Leaving without a word is no failure of that rank; the others name it when the start has waited long enough.
        self.check("start", "exit0", (3,), HOROVOD_START_TIMEOUT="2")

    def test_start_abort(self):
        self.check("start", "abort", self.ABORTED)

    def test_start_stop(self):
        self.check("start", "stop", (3,), HOROVOD_START_TIMEOUT="2")

    def test_agreement_kill(self):
        self.check("agreement", "kill", self.KILLED, self.KILL_SAYS)

    def test_agreement_exit7(self):
        self.check("agreement", "exit7", (7,))

    def test_agreement_exit0(self):
        self.check("agreement", "exit0", (3,), ("rank {victim} (host ",))

    def test_agreement_abort(self):
        self.check("agreement", "abort", self.ABORTED)

    def test_agreement_stop(self):
        self.check("agreement", "stop", (3,), ("Missing ranks:", "process is stopped"), HOROVOD_STALL_CHECK_TIME_SECONDS="1",
                   HOROVOD_STALL_SHUTDOWN_TIME_SECONDS="2")

    def test_inside_kill(self):
        self.check("inside", "kill", self.KILLED, self.KILL_SAYS)

    def test_inside_exit7(self):
        self.check("inside", "exit7", (7,))

    def test_inside_exit0(self):
        self.check("inside", "exit0", (3,), ("rank {victim} (host ",))

    def test_inside_abort(self):
        self.check("inside", "abort", self.ABORTED)

    def test_inside_stop(self):
        self.check("inside", "stop", (3,), ("Missing ranks:",), HOROVOD_STALL_CHECK_TIME_SECONDS="1",
                   HOROVOD_STALL_SHUTDOWN_TIME_SECONDS="2")

    def test_between_kill(self):
        self.check("between", "kill", self.KILLED, self.KILL_SAYS)

    def test_between_exit7(self):
        self.check("between", "exit7", (7,))

    def test_between_exit0(self):
        self.check("between", "exit0", (3,))

    def test_between_abort(self):
        self.check("between", "abort", self.ABORTED)

    def test_shutdown_kill(self):
        self.check("shutdown", "kill", self.KILLED, self.KILL_SAYS)

    def test_shutdown_exit7(self):
        self.check("shutdown", "exit7", (7,))

    def test_shutdown_exit0(self):
        self.check("shutdown", "exit0", (0,))

    def test_shutdown_abort(self):
        self.check("shutdown", "abort", self.ABORTED)


class Stops(LauncherTest):
    """A rank that is stopped is named, and only that: a long evaluation looks the same."""

    def stop_and_go(self, phase):
        job = Job(RANKS, [VICTIM, phase, "stop", "1"], HOROVOD_STALL_CHECK_TIME_SECONDS="1")
        job.wait_for_lines(1, b"process is stopped", of_errors=True)
        self.assertIn(b"Missing ranks:", job.errors)
        self.assertIsNone(job.front.poll())
        return job

    def test_rank_is_named_and_the_job_goes_on(self):
        for phase in ("agreement", "inside"):
            job = self.stop_and_go(phase)
            job.front.send_signal(signal.SIGTERM)
            job.finish()
            job.assert_nothing_is_left(self)


if __name__ == "__main__":
    unittest.main()
