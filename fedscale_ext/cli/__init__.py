"""The ``fedscale`` command. Heavy packages are imported inside its commands, so that it starts fast."""
