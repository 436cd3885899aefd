"""An engine that hangs, once, after some records: what SLURM takes away is then known to the record."""

import time
from pathlib import Path

from standin import StandIn


class HangsOnce(StandIn):
    """Options: `after` (records answered before it hangs) and `mark` (a file that says that it has hung already)."""

    def generate(self, requests):
        mark = Path(self.options["mark"])
        for number, completion in enumerate(super().generate(requests), 1):
            yield completion
            if number == self.options["after"] and not mark.exists():
                mark.touch()
                time.sleep(3600)
