"""A Checkpointer as a part of the state of an elastic training (hvd.elastic.TorchState)."""
import copy

from horovod.torch._job import is_initialized, size
from horovod.torch.elastic.handlers import StateHandler
from horovod.torch.functions import broadcast_object


class CheckpointerHandler(StateHandler):
    """Ranks that come later save at the same steps as the others. If the job ends because it has too few ranks, one of
    them writes the last commit, with the last step() of the Checkpointer before it."""

    follows_root = True

    def save(self):
        self._told = copy.deepcopy(self.value.told)
        self._ranks = size() if is_initialized() else 1

    def restore(self):
        """Its files stay, and the steps that they belong to. But the commit is of the step that was told before it."""
        self.value.told = copy.deepcopy(self._told)

    def sync(self):
        self.value.go_on_from(broadcast_object(self.value.progress(), self.root, "elastic.checkpointer"))

    def can_keep(self):
        return self._told is not None and self.value.can_save_alone(self._told[0], self._ranks)

    def keep(self):
        step, extra = self._told
        self.value.save_alone(step, extra, self._ranks)
