"""Channel groups of any network, found from its forward pass."""

from fedscale_ext.models.channels.layout import channel_layout

__all__ = ["channel_layout"]
