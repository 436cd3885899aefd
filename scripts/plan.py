"""Say what a run will take before anything runs: tokens, memory, GPUs, hours, money; refuse what cannot fit."""

import argparse
import sys

from longflow.cli import add_configuration, configuration, end


def positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: a number above 0 was expected")
    return value


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--exact", action="store_true", help="count tokens with each model's tokenizer")
    parser.add_argument(
        "--gpu-memory", type=positive, metavar="GIB", help="memory of each GPU; default: nvidia-smi's word"
    )
    parser.add_argument("--memory", type=positive, metavar="GIB", help="memory of a job without GPUs")
    parser.add_argument("--prefill-rate", type=positive, metavar="N", help="tokens of prompts a second")
    parser.add_argument("--decode-rate", type=positive, metavar="N", help="tokens of answers a second")
    parser.add_argument("--output", metavar="FILE", help="where the plan is kept; default: plan.json in the results")
    add_configuration(parser)
    arguments = parser.parse_args()

    from longflow.cells import Files
    from longflow.jsonio import write_json
    from longflow.plan import plan, show

    config = configuration(arguments)
    options = plan.Options(
        exact=arguments.exact,
        gpu_memory=arguments.gpu_memory,
        memory=arguments.memory,
        prefill_rate=arguments.prefill_rate,
        decode_rate=arguments.decode_rate,
    )
    made = plan.make(config, options)
    print(show.describe(made))
    write_json(arguments.output or Files(config).plan, made)
    for each in made["refused"]:
        print(f"error: {each['cell']}: {each['why']}", file=sys.stderr)
    return 2 if made["refused"] else 0


if __name__ == "__main__":
    end(main)
