"""A specification of predictions, as cells.predict_spec makes them: the stand-in engine, greedy, short answers."""

from longflow.cells import INFERENCE_VERSION

SPEC = {
    "model": {"engine": "standin:StandIn", "chat": "none", "chat_options": {}, "chat_date": "2024-07-26"},
    "prompt": "{context}\n{input}",
    "max_prompt_tokens": 1000,
    "truncation": "middle",
    "wrap": True,
    "generation": {
        "max_new_tokens": 8,
        "temperature": 0.0,
        "top_p": 1.0,
        "seed": None,
        "min_new_tokens": 0,
        "stop_newline": False,
    },
    "limit": None,
    "repeats": 1,
    "version": INFERENCE_VERSION,
}
