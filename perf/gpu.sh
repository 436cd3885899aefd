#!/usr/bin/env bash
# The engine on a GPU against the reference loop, with random weights in the shapes of Llama-3-8B and Qwen2.5-7B.
# One GPU with 80 GB, no downloads, under eight minutes. `perf/gpu.sh --small` runs tiny shapes on a CPU in seconds.
set -euo pipefail
cd "$(dirname "$0")/.."
exec timeout 480 python -m perf.gpu "$@"
