"""``python -m fedscale_ext.cli`` is the ``fedscale`` command."""

from fedscale_ext.cli.main import main

if __name__ == "__main__":
    main()
