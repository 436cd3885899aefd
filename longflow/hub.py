"""Files of hub data sets, taken as files: loading scripts are not run."""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path

from longflow.errors import UserError

log = logging.getLogger("longflow")


def fetch(repository: str, revision: str, file: str, output: str | Path) -> None:
    """Fetch one file of a hub data set and put it at `output`, whole or not at all.

    HF_ENDPOINT, HF_HUB_OFFLINE and a token are honoured by huggingface_hub. The download goes beside the output, not
    into the hub's cache, so that a large file is not kept twice.

    Raises UserError naming the file, the repository and the way round.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    target = Path(output)
    target.parent.mkdir(parents=True, exist_ok=True)
    log.info("fetching %s of %s at %s", file, repository, revision)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".download-") as folder:
        try:
            got = hf_hub_download(repository, file, repo_type="dataset", revision=revision, local_dir=folder)
        except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
            reason = str(error).strip().splitlines()
            raise UserError(
                f"{file} of the hub data set {repository} at {revision} could not be fetched "
                f"({reason[0] if reason else type(error).__name__}); without network, name a folder in source:"
            ) from error
        os.replace(got, target)
    log.info("fetched %s, %d MB", target, target.stat().st_size // 2**20)
