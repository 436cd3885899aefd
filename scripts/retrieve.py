"""Write the records of a setting: the same questions, with another context or none."""

import argparse

from longflow.cli import add_configuration, configuration, end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--setting", required=True, help="a key under settings:")
    parser.add_argument("--records", required=True, help="the records of the data set")
    parser.add_argument("--spec", required=True, help="the specification of the setting, kept beside the output")
    parser.add_argument("--output", required=True)
    add_configuration(parser)
    arguments = parser.parse_args()

    from longflow import interrupts, settings
    from longflow.jsonio import write_jsonl
    from longflow.progress import set_up_logging
    from longflow.records import read_records
    from longflow.specs import write_spec

    set_up_logging()
    interrupts.install()
    config = configuration(arguments)
    setting = config.setting(arguments.setting)
    made = settings.apply(read_records(arguments.records, config.run.limit), setting)
    write_jsonl(arguments.output, (record.to_row() for record in made))
    write_spec(arguments.output, arguments.spec)


if __name__ == "__main__":
    end(main)
