"""The settings of an elastic job, for programs that pass them on."""
import dataclasses
from typing import Optional, Tuple

from horovod.runner.elastic.discovery import HostDiscovery


@dataclasses.dataclass
class ElasticSettings:
    """discovery: where the hosts come from. The others are horovodrun's flags of the same names."""

    discovery: HostDiscovery
    min_num_proc: int
    max_num_proc: Optional[int] = None
    num_proc: Optional[int] = None  # min_num_proc if it is not given
    elastic_timeout: int = 600
    reset_limit: Optional[int] = None
    cooldown_range: Optional[Tuple[int, int]] = None

    def __post_init__(self):
        if self.num_proc is None:
            self.num_proc = self.min_num_proc
        most = float("inf") if self.max_num_proc is None else self.max_num_proc
        if not 1 <= self.min_num_proc <= self.num_proc <= most:
            raise ValueError("expected 1 <= min_num_proc <= num_proc <= max_num_proc, found "
                             f"{self.min_num_proc}, {self.num_proc}, {self.max_num_proc}")
