"""Answer the records of several cells of one model, which is loaded once."""

import argparse

from longflow.cli import add_configuration, configuration, end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a key under models:, whose entry has batch:")
    parser.add_argument("batch", type=int, help="which batch of its cells, from 0")
    parser.add_argument("--model-file", required=True, help="the model's model.json")
    parser.add_argument("--threads", type=int, help="CPU threads; default as configured")
    add_configuration(parser)
    arguments = parser.parse_args()

    from longflow import interrupts, jobs, predict
    from longflow.progress import set_up_logging

    set_up_logging()
    interrupts.install()
    config = configuration(arguments)
    predict.run_batch(*jobs.batch(config, arguments.model, arguments.batch, arguments.model_file, arguments.threads))


if __name__ == "__main__":
    end(main)
