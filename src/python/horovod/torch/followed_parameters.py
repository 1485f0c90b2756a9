"""Which parameters a distributed optimizer has, and the names by which the ranks match their gradients."""
import operator

import torch
from torch.nn.parameter import is_lazy

from horovod import _core
from horovod.torch import shared_parameters
from horovod.torch.compression import NoneCompressor
from horovod.torch.gradient import Gradient
from horovod.torch.gradient_group import Group
from horovod.torch.gradient_presence import DENSE, Presence
from horovod.torch.mpi_ops import Max, allreduce_


class FollowedParameters:
    """A part of Gradients."""

    def follow(self, param_groups):
        """Follows the parameters that the optimizer steps now: a program may add, remove, freeze and unfreeze
        parameters."""
        parameters = [parameter for group in param_groups for parameter in group["params"]]
        if len(parameters) != len(self._parameters) or not all(map(operator.is_, parameters, self._parameters)):
            self._adopt(param_groups)
            self._parameters = parameters
        if self._unhooked:
            computed = [gradient for gradient in self._unhooked
                        if gradient.parameter.requires_grad and not is_lazy(gradient.parameter)]
            shared_parameters.end_unused([gradient.parameter for gradient in computed])
            for gradient in computed:
                gradient.hook_up()
            self._unhooked = [gradient for gradient in self._unhooked if gradient.hook is None]

    def _adopt(self, param_groups):
        if _core.is_initialized():  # between two jobs there is nobody to tell
            if self._has_names and self._all and self._has_any_rank_told():
                self.close()  # all ranks tell for which of the parameters so far they have gradients
                self.is_closed = False  # this round goes on with the new ones
            self.end_alerts()
            self._presence.forget()
            self._presence.hear()  # an exchange of the last round may still be under way
        known = {id(gradient.parameter): gradient for gradient in self._all}
        self._all = []
        for group in param_groups:
            for parameter in group["params"]:
                gradient = known.pop(id(parameter), None)
                if gradient is None:
                    gradient = Gradient(parameter, self.names.find(parameter), self)
                    self._unhooked.append(gradient)
                    self.some_join_late |= self.submitted > 0 and parameter.grad is not None
                self._all.append(gradient)
        self._sort()
        self._filled = [(gradient, kind) for gradient, kind in self._filled if id(gradient.parameter) not in known]
        for gradient in known.values():
            self._unhooked = [other for other in self._unhooked if other is not gradient]
            gradient.let_go()  # may wait, and then tells the others about the remaining gradients

    def _has_any_rank_told(self):
        """True if some rank, which has used gradients early, has told the others about those of this round."""
        if self.settings.process_set.process_set_id is None:
            return False  # the process set has been removed
        found = torch.tensor([self._presence.is_told], dtype=torch.uint8, device="cpu")
        name, process_set = self.names.of("new parameters"), self.settings.process_set
        return allreduce_(found, None, name, Max, process_set=process_set).item()

    def take_names(self):
        """From now on the ranks can match the gradients by name. A second call changes nothing."""
        if self._has_names:
            return
        for each in sorted(self._with_shared_parameters(), key=operator.attrgetter("_number")):
            if not each._has_names:
                each._has_names = True
                each.names.take_number()
                each.is_plain = each.views is None and each.settings.compression is NoneCompressor
                each._find_names()

    def _with_shared_parameters(self):
        """This object and those that are connected with it by parameters of several optimizers. They take their names
        together, because the ranks may use them in different orders."""
        found, new = {self}, [self]
        while new:
            others = {other.of_all for each in new for gradient in each._all for other in gradient.sharers}
            new = list(others - found)
            found |= others
        return found

    def _find_names(self):
        for gradient in self._all:
            gradient.name = self.names.find(gradient.parameter)
        self._sort()

    def _sort(self):
        by_name = sorted(self._all, key=operator.attrgetter("name"))
        # Sparse gradients of this round keep their kinds.
        kinds = bytearray(max(DENSE, self.kinds[gradient.place]) if gradient.is_submitted else DENSE
                          for gradient in by_name)
        for place, gradient in enumerate(by_name):
            gradient.place = place
        self.kinds = kinds
        name = f"which have a gradient: {by_name[0].name}, ..." if by_name else None
        self._presence = Presence(name, len(by_name), self.settings.process_set)

    def use_views(self, views):
        self.views = views
        self.is_plain = False

    def make_groups(self, members):
        """members: a list of lists of parameters whose gradients are reduced together."""
        by_parameter = {id(gradient.parameter): gradient for gradient in self._all}
        for parameters in members:
            group = Group([by_parameter[id(parameter)] for parameter in parameters if id(parameter) in by_parameter
                           and not by_parameter[id(parameter)].is_shared])
            for gradient in group.members:
                gradient.group = group
            if group.members:
                self._groups.append(group)
