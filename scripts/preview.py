"""Show the tables of a run that may not be finished."""

import argparse

from longflow.cli import add_configuration, configuration, end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_configuration(parser)
    arguments = parser.parse_args()

    from pathlib import Path

    from longflow import cells
    from longflow.preview import preview
    from longflow.tables import read_summaries

    config = configuration(arguments)
    files = cells.Files(config)
    expected = list(cells.cells(config))
    done = [files.score(cell) for cell in expected if Path(files.score(cell)).exists()]
    print(preview(read_summaries(done), expected))


if __name__ == "__main__":
    end(main)
