"""``python -m windsock`` is the ``windsock`` command."""

import sys

from windsock.cli import main

sys.exit(main())
