"""Write the pages of the catalogue: ``python -m windsock.catalogue [FOLDER]``, by default into ``docs``."""

import sys
from pathlib import Path

from windsock.catalogue.page import write

for path in write(Path(sys.argv[1] if len(sys.argv) > 1 else "docs")):
    print(path)
