"""Run a command with GPUs of its own: python -m scripts.gpu_lease --n 2 -- COMMAND …"""

import argparse
import os

from longflow.cli import end
from longflow.errors import UserError
from longflow.gpus import lease


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, required=True, help="GPUs the command needs")
    parser.add_argument("--timeout", type=float, default=24 * 3600, help="seconds to wait for them (a day)")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    if arguments.n < 0:
        parser.error("--n: 0 or more was expected")
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        parser.error("no command given")
    environment = lease(arguments.n, os.environ, arguments.timeout)
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        raise UserError(f"{command[0]}: cannot be run ({error.strerror})") from error


if __name__ == "__main__":
    end(main)
