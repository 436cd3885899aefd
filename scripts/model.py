"""Find out which model an entry of the configuration means, and fetch or convert it if need be."""

import argparse

from longflow.cli import add_configuration, configuration, end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a key under models:")
    parser.add_argument("--spec", required=True, help="the specification of the model, kept beside the output")
    parser.add_argument("--output", required=True)
    add_configuration(parser)
    arguments = parser.parse_args()

    from pathlib import Path

    from longflow import models
    from longflow.progress import set_up_logging
    from longflow.specs import write_spec

    set_up_logging()
    config = configuration(arguments)
    output = Path(arguments.output)
    models.save(models.resolve(config.model(arguments.model).entry(), output.parent), output)
    write_spec(output, arguments.spec)


if __name__ == "__main__":
    end(main)
