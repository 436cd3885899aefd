"""Answer the records of one cell: those the journal does not hold yet by the model, the others from the journal."""

import argparse

from longflow.cli import add_configuration, configuration, end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cell", help="benchmark/model/setting/dataset/length")
    parser.add_argument("--records", required=True)
    parser.add_argument("--model-file", required=True, help="the model's model.json")
    parser.add_argument("--spec", required=True, help="the specification of the predictions, kept beside them")
    parser.add_argument("--threads", type=int, help="CPU threads; default as configured")
    parser.add_argument("--output", required=True)
    add_configuration(parser)
    arguments = parser.parse_args()

    from longflow import models, predict
    from longflow.cells import Cell, Files
    from longflow.progress import set_up_logging
    from longflow.specs import read_spec, write_spec

    set_up_logging()
    config = configuration(arguments)
    cell, files = Cell.parse(arguments.cell), Files(config)
    model = config.model(cell.model)
    job = predict.Job(
        name=cell.name,
        records=arguments.records,
        model=models.load(arguments.model_file),
        entry={**model.entry(), "threads": arguments.threads or model.job_threads},
        spec=read_spec(arguments.spec, "model", "prompt", "generation"),
        journal=files.journal_of(cell),
    )
    predict.run(job, arguments.output, files.usage(cell))
    write_spec(arguments.output, arguments.spec)


if __name__ == "__main__":
    end(main)
