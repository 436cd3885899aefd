"""Take a file of predictions made elsewhere as the predictions of a cell, and say what was found in it."""

import argparse

from longflow.cli import add_configuration, configuration, end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cell", help="benchmark/model/setting/dataset/length")
    parser.add_argument("--predictions", required=True, help="the file")
    parser.add_argument("--spec", required=True, help="the specification of the predictions, kept beside them")
    parser.add_argument("--output", required=True)
    add_configuration(parser)
    arguments = parser.parse_args()

    from longflow import imported
    from longflow.cells import Cell, Files, expected_of
    from longflow.jsonio import write_json
    from longflow.progress import set_up_logging
    from longflow.specs import write_spec

    set_up_logging()
    config = configuration(arguments)
    cell = Cell.parse(arguments.cell)
    expected = expected_of(config, cell)
    markers = getattr(config.models[cell.model], "reasoning", None)
    counts = imported.take(arguments.predictions, arguments.output, expected, cell.name, markers)
    write_json(Files(config).usage(cell), {"cell": cell.name, **counts})
    write_spec(arguments.output, arguments.spec)


if __name__ == "__main__":
    end(main)
