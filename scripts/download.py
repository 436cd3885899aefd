"""Fetch a file of a hub data set at a revision, or of a GitHub repository at a commit, checked."""

import argparse

from longflow.cli import end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", required=True, help="where the file comes from, as JSON: hub or github, file …")
    parser.add_argument("--output", required=True)
    arguments = parser.parse_args()

    from longflow import github, hub
    from longflow.progress import set_up_logging
    from longflow.specs import read_spec

    set_up_logging()
    spec = read_spec(arguments.spec, "file")
    if "github" in spec:
        github.fetch(spec["github"], spec["commit"], spec["file"], spec["sha256"], arguments.output)
    else:
        hub.fetch(spec["hub"], spec["revision"], spec["file"], arguments.output)


if __name__ == "__main__":
    end(main)
