"""veRL's ``Tracking`` with windsock, where windsock cannot write."""

import json

from verl.utils.tracking import Tracking

logger = Tracking("p", "e", ["console", "windsock"], {"trainer": {}})
for step in range(3):
    logger.log(data={"critic/score/mean": 1.0}, step=step)
logged = step + 1
del logger
print(json.dumps({"logged": logged}))
