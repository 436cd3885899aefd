"""Take a picture of the first screen of a report, with a headless Chromium: the one in the README."""

import argparse

from longflow.cli import end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", nargs="?", default="results/report.html")
    parser.add_argument("--output", default="docs/images/report.png")
    parser.add_argument("--width", type=int, default=1400, help="of the window, in pixels")
    parser.add_argument("--height", type=int, default=900)
    parser.add_argument("--dark", action="store_true")
    arguments = parser.parse_args()

    from longflow.report.browser import picture

    picture(arguments.report, arguments.output, arguments.width, arguments.height, dark=arguments.dark)


if __name__ == "__main__":
    end(main)
