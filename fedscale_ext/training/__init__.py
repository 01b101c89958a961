"""What a client does: steps of an optimizer on its samples, alone or side by side with other clients."""

from fedscale_ext import compat

compat.prepare()
