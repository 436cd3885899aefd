"""Take a cell's predictions from its batch, or say why there are none."""

import argparse

from longflow.cli import end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("given", help="what the batch gave for the cell")
    parser.add_argument("--spec", required=True, help="the specification of the predictions, kept beside them")
    parser.add_argument("--output", required=True, help="the cell's predictions")
    arguments = parser.parse_args()

    from longflow import batch_files

    batch_files.take(arguments.given, arguments.output, arguments.spec)


if __name__ == "__main__":
    end(main)
