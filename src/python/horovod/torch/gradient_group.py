"""Gradients that are reduced together, as soon as the last of them has been computed."""
from horovod.torch._tensors import version_of
from horovod.torch.gradient_reduction import is_gathered
from horovod.torch.gradients_in_flight import land, take_off
from horovod.torch.mpi_ops import grouped_allreduce_async_


class Group:
    def __init__(self, members):
        self.members = members
        self.begin_round()

    def begin_round(self):
        self.handle = None
        self.is_started = False
        self.held = 0

    def is_in(self, kinds):
        return any(kinds[gradient.place] for gradient in self.members)

    def hold(self, gradient, tensor):
        gradient.tensor = tensor
        gradient.version = version_of(tensor)
        take_off(tensor, gradient)
        self._count()

    def pass_over(self):
        """Called when the gradient of a member is in flight from an optimizer that no longer exists. The other members
        do not wait for it."""
        if not self.is_started:
            self._count()

    def pass_over_no_longer(self):
        if not self.is_started:
            self.held -= 1

    def _count(self):
        self.held += 1
        if self.held == len(self.members):
            self._start()

    def leave(self, gradient):
        """Called when the optimizer does not step this member any more, or when another one steps it, too, which may
        reduce it without the group. The others may have waited for it alone."""
        self.members.remove(gradient)
        if self.is_started:
            return
        if gradient.tensor is not None:
            gradient.give_up()
            self.held -= 1
        elif gradient.is_done:
            self.held -= 1
        if self.held and self.held == len(self.members):
            self._start()

    def _start(self):
        self.is_started = True
        self.members[0].of_all.take_names()
        waiting = [gradient for gradient in self.members if gradient.tensor is not None]
        dense, reduced = [], []
        for gradient in waiting:
            tensor = gradient.tensor
            land(tensor)
            if is_gathered(tensor, gradient.settings):
                gradient.start_gathering(tensor)
            else:
                tensor, given = gradient.prepare(tensor)
                dense.append(gradient)
                reduced.append(given)
            gradient.tensor = tensor
            take_off(tensor, gradient)
        if dense:
            settings = dense[0].settings
            self.handle = grouped_allreduce_async_(reduced, None, dense[0].name, settings.op, settings.prescale,
                                                   settings.postscale, settings.process_set)
        for gradient in waiting:
            gradient.version = version_of(gradient.tensor)
