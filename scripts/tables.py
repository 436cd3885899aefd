"""Write the tables of one model: result.json and result.csv in the benchmark's layout, and the protocol."""

import argparse

from longflow.cli import add_configuration, configuration, end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", help="benchmark/model/setting")
    parser.add_argument("--spec", required=True, help="the specification of the tables, kept beside them")
    parser.add_argument("--json", required=True)
    parser.add_argument("--csv", required=True)
    parser.add_argument("--protocol", required=True)
    add_configuration(parser)
    arguments = parser.parse_args()

    from longflow import cells, models, tables, usage
    from longflow.errors import UserError
    from longflow.jsonio import write_json
    from longflow.specs import read_spec, write_spec

    config = configuration(arguments)
    files = cells.Files(config)
    mine = [cell for cell in cells.cells(config) if cell.name.startswith(arguments.table + "/")]
    if not mine:
        raise UserError(f"{arguments.table}: no cell of this configuration is of that benchmark, model and setting")
    # Which library versions made the answers is known beside the predictions, not in the configuration.
    versions = usage.libraries(files.usage_folder, [cell.name for cell in mine])
    ours = config.model(mine[0].model).engine != "imported"
    identity = models.load(files.model(mine[0].model))["identity"] if ours else None
    summaries = tables.read_summaries([files.score(cell) for cell in mine])
    tables.write_tables(summaries, arguments.table.split("/")[0], arguments.json, arguments.csv)
    facts = {
        **read_spec(arguments.spec, "protocol")["protocol"],
        "model_identity": identity,
        "libraries": versions,
        "metric_libraries": usage.metric_libraries(),
    }
    write_json(arguments.protocol, tables.protocol_json(summaries, facts))
    write_spec(arguments.json, arguments.spec)


if __name__ == "__main__":
    end(main)
