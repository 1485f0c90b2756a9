"""What a process knows of the LSF job that it is in."""
import os


class LSFUtils:
    @staticmethod
    def using_lsf():
        """True inside a job of LSF."""
        return "LSB_JOBID" in os.environ
