"""transformers: `generate` with a static cache compiles by itself, and with a dynamic one the model's forward is compiled. Random weights.

    python -m pliant run --stats examples/integrations/transformers_generate.py
"""

from __future__ import annotations

import torch
from transformers import CompileConfig, LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
small = LlamaConfig(
    vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=128,
)  # fmt: skip
model = LlamaForCausalLM(small).eval()
prompts = [torch.randint(1, 128, (batch, length)) for batch in (1, 2, 3) for length in (5, 9, 17)]
asked = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
eager = [model.generate(p, **asked) for p in prompts]

anywhere = CompileConfig()
anywhere._compile_all_devices = True  # transformers compiles on accelerators alone, unless told
static = [model.generate(p, cache_implementation="static", compile_config=anywhere, **asked) for p in prompts]
assert all(map(torch.equal, static, eager))

model.forward = torch.compile(model.forward)
dynamic = [model.generate(p, **asked) for p in prompts]
assert all(map(torch.equal, dynamic, eager))
print("the same tokens:", len(prompts), "prompts")
