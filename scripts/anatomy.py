"""Tell of each record of a model's cells what became of it, why, and where its evidence was."""

import argparse

from longflow.cli import add_configuration, configuration, end
from longflow.errors import UserError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="benchmark/model/setting")
    parser.add_argument("--spec", required=True, help="the specification of the anatomies, kept beside the output")
    parser.add_argument("--output", required=True, help="the counts of all cells (.json)")
    add_configuration(parser)
    arguments = parser.parse_args()

    from longflow.anatomy import files
    from longflow.progress import set_up_logging
    from longflow.specs import write_spec

    set_up_logging()
    chosen = arguments.model.split("/")
    if len(chosen) != 3:
        raise UserError(f"{arguments.model!r}: benchmark/model/setting was expected")
    files.write_all(configuration(arguments), *chosen, arguments.output)
    write_spec(arguments.output, arguments.spec)


if __name__ == "__main__":
    end(main)
