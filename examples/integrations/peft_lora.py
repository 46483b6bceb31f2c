"""peft: LoRA adapters around a compiled model, switched on, off and over, and trained. Random weights.

    python -m pliant run --stats examples/integrations/peft_lora.py
"""

from __future__ import annotations

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
small = LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2
)
model = get_peft_model(LlamaForCausalLM(small), LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False))
model.add_adapter("other", LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
compiled = torch.compile(model)

for length in (5, 9, 14):
    ids = torch.randint(0, 64, (2, length))
    with torch.no_grad():
        for adapter in ("default", "other"):
            model.set_adapter(adapter)
            torch.testing.assert_close(compiled(input_ids=ids).logits, model(input_ids=ids).logits, rtol=1e-4, atol=1e-5)
        with model.disable_adapter():
            torch.testing.assert_close(compiled(input_ids=ids).logits, model(input_ids=ids).logits, rtol=1e-4, atol=1e-5)

model.set_adapter("default")
ids = torch.randint(0, 64, (2, 6))
grads = []
for call in (model, compiled):
    model.zero_grad()
    call(input_ids=ids, labels=ids).loss.backward()
    grads.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
assert len(grads[0]) == len(grads[1]) > 0
for a, b in zip(*grads, strict=True):
    torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
print("the same logits and gradients, adapters on, off and changed")
