"""``python -m barograph`` is the ``barograph`` command."""

import sys

from barograph.apps.cli import main

sys.exit(main())
