"""Fetch a file of a benchmark's hub data set at its pinned revision."""

import argparse

from longflow.cli import end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", required=True, help="the hub data set and its revision, as JSON")
    parser.add_argument("--file", required=True, help="the file's path in the data set")
    parser.add_argument("--output", required=True)
    arguments = parser.parse_args()

    from longflow.hub import fetch
    from longflow.progress import set_up_logging
    from longflow.specs import read_spec

    set_up_logging()
    spec = read_spec(arguments.spec, "hub", "revision")
    fetch(spec["hub"], spec["revision"], arguments.file, arguments.output)


if __name__ == "__main__":
    end(main)
