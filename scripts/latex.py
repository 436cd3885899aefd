"""Write the tables of a run as LaTeX (booktabs), beside the CSV files, and its scores with their intervals."""

import argparse

from longflow.cli import add_configuration, configuration, end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_configuration(parser)
    arguments = parser.parse_args()

    from longflow.report import latex

    for path in latex.write(configuration(arguments)):
        print(path)


if __name__ == "__main__":
    end(main)
