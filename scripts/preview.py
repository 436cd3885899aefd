"""Show the tables of a run that may not be finished."""

import argparse

from longflow.cli import add_configuration, configuration, end


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    add_configuration(parser)
    arguments = parser.parse_args()

    from pathlib import Path

    from longflow import cells
    from longflow.errors import UserError
    from longflow.preview import failures, preview
    from longflow.tables import read_summaries

    config = configuration(arguments)
    files = cells.Files(config)
    expected = list(cells.cells(config))
    done, unreadable = [], []
    for cell in expected:
        if Path(files.score(cell)).exists():
            try:
                done += read_summaries([files.score(cell)])
            except UserError as error:
                unreadable.append(str(error))
    # What failed where it was made cannot be tried again here.
    ours = [summary for summary in done if config.model(summary["model"]).engine != "imported"]
    print("\n".join([preview(done, expected), *filter(None, [failures(ours)]), *unreadable]))
    return 2 if unreadable else 0


if __name__ == "__main__":
    end(main)
