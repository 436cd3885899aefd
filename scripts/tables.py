"""Write the tables of one model: result.json and result.csv in the benchmark's layout, and the protocol."""

import argparse

from longflow.cli import add_configuration, configuration, end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", required=True, help="the specification of the tables, kept beside them")
    parser.add_argument("--json", required=True)
    parser.add_argument("--csv", required=True)
    parser.add_argument("--protocol", required=True)
    parser.add_argument("scores", nargs="+", help="the scores of the model's cells")
    add_configuration(parser)
    arguments = parser.parse_args()

    from longflow import tables, usage
    from longflow.cells import Files
    from longflow.jsonio import write_json
    from longflow.specs import read_spec, write_spec

    spec = read_spec(arguments.spec)
    # Which library versions made the answers is known beside the predictions, not in the configuration.
    folder = Files(configuration(arguments)).usage_folder
    facts = {**spec["protocol"], "libraries": usage.libraries(folder, spec["cells"])}
    summaries = tables.read_summaries(arguments.scores)
    tables.write_tables(summaries, facts["benchmark"], arguments.json, arguments.csv)
    write_json(arguments.protocol, tables.protocol_json(summaries, facts))
    write_spec(arguments.json, arguments.spec)


if __name__ == "__main__":
    end(main)
