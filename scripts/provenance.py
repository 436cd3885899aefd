"""Write what made the results: versions, models, data, configuration, code and machines."""

import argparse

from longflow.cli import add_configuration, configuration, end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", required=True, help="the specification of the file, whose digest is kept beside it")
    parser.add_argument("--output", required=True)
    add_configuration(parser)
    arguments = parser.parse_args()

    from longflow import cells, provenance
    from longflow.jsonio import write_json
    from longflow.specs import write_spec

    config = configuration(arguments)
    write_json(arguments.output, provenance.collect(config, cells.cells(config), cells.Files(config)))
    write_spec(arguments.output, arguments.spec)


if __name__ == "__main__":
    end(main)
