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
    parser.add_argument("--shard", metavar="K/N", help="answer shard K of N (from 0) into the journal")
    parser.add_argument("--shards", nargs="+", metavar="FILE", help="write the predictions that these shards answered")
    parser.add_argument("--output", required=True)
    add_configuration(parser)
    arguments = parser.parse_args()

    from longflow import interrupts, jobs, predict
    from longflow.cells import Cell, Files
    from longflow.progress import set_up_logging
    from longflow.specs import read_spec, write_spec

    set_up_logging()
    interrupts.install()
    config = configuration(arguments)
    cell = Cell.parse(arguments.cell)
    spec = read_spec(arguments.spec, "model", "prompt", "generation")
    job = jobs.job(config, cell, arguments.records, arguments.model_file, spec, arguments.threads)
    place = predict.Place(arguments.output, Files(config).usage(cell), arguments.spec)
    if arguments.shard:
        shard, shards = jobs.shard_of(arguments.shard)
        predict.run_shard(job, shard, shards, arguments.output)
        write_spec(arguments.output, arguments.spec)
    elif arguments.shards:
        predict.assemble(job, arguments.shards, place)
    else:
        predict.run(job, place.predictions, place.usage, place.spec)


if __name__ == "__main__":
    end(main)
