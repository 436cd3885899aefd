"""Print the files that have failed records, to try only those again: snakemake -R $(python -m scripts.failed)"""

import argparse
import sys

from longflow.cli import add_configuration, configuration, end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_configuration(parser)
    arguments = parser.parse_args()

    from longflow import failed

    found = failed.find(configuration(arguments))
    for line in failed.describe(found):
        print(line, file=sys.stderr)
    print(" ".join(path for each in found for path in each.again))


if __name__ == "__main__":
    end(main)
