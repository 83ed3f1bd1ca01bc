#!/bin/sh
# Score an exported model with lm_eval on the task beside this script, without a network:
#   sympformer export runs/mine exports/mine
#   docs/examples/lm_eval/run.sh exports/mine [more options of lm_eval]
set -eu
model=$(cd "${1:?say which exported folder}" && pwd)
shift
cd "$(dirname "$0")"
export HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1
exec lm_eval run --model hf --model_args "pretrained=$model,trust_remote_code=True,dtype=float32" \
  --tasks story_endings --include_path . --device cpu --batch_size 2 "$@"
