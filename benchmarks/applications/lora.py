"""A Llama with LoRA's adapters, trained by preferences against itself with the adapters off, then generating."""

import torch
import torch.nn.functional as F
import transformers as T
from peft import LoraConfig, get_peft_model


def program(compile_):
    base = T.LlamaForCausalLM(
        T.LlamaConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
        )
    )
    m = get_peft_model(base, LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], lora_dropout=0.1))
    opt = torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], 1e-3)

    def lp(ids, mask):
        o = m(input_ids=ids).logits[:, :-1].log_softmax(-1)
        t = ids[:, 1:]
        return (o.gather(-1, t[..., None]).squeeze(-1) * mask[:, 1:]).sum(-1)

    def step(c, r, cm, rm):
        m.train()
        pc, pr = lp(c, cm), lp(r, rm)
        with torch.no_grad(), m.disable_adapter():
            rc, rr = lp(c, cm), lp(r, rm)
        l = -F.logsigmoid(0.1 * ((pc - rc) - (pr - rr))).mean()
        l.backward()
        opt.step()
        opt.zero_grad()
        return l.item(), (pc > pr).float().mean().item()

    step = compile_(step)

    def f(i):
        b, n = 2 + i % 2, 6 + i % 7
        g = lambda: torch.randint(0, 64, (b, n))
        k = lambda: (torch.arange(n)[None] < torch.randint(3, n + 1, (b, 1))).float()
        r = list(step(g(), g(), k(), k()))
        if i % 5 == 4:
            m.eval()
            r.append(m.generate(input_ids=torch.randint(3, 64, (1, 4 + i % 3)), max_new_tokens=4, do_sample=False, pad_token_id=0))
        return r

    return f
